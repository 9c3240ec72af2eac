mod native;

brig_attacks::leftovers!(native::ground);
