mod native;

brig_attacks::memory!(native::ground);
