mod native;

brig_attacks::saving!(native::ground);
