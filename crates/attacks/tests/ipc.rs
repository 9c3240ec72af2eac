mod native;

brig_attacks::ipc!(native::ground);
