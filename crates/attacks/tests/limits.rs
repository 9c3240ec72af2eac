mod native;

brig_attacks::limits!(native::ground);
