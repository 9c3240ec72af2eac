mod native;

brig_attacks::missing!(native::ground);
