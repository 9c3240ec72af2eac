mod native;

brig_attacks::processes!(native::ground);
