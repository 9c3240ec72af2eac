mod native;

brig_attacks::privileges!(native::ground);
