mod native;

brig_attacks::readonly!(native::ground);
