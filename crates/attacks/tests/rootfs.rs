mod native;

brig_attacks::rootfs!(native::ground);
