mod native;

brig_attacks::commands!(native::ground);
