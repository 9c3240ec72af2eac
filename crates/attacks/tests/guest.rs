mod native;

brig_attacks::guest!(native::ground);
