mod native;

brig_attacks::names!(native::ground);
