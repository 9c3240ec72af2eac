mod native;

brig_attacks::environment!(native::ground);
