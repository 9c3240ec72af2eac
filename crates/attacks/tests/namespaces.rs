mod native;

brig_attacks::namespaces!(native::ground);
