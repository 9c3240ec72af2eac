mod native;

brig_attacks::kernel!(native::ground);
