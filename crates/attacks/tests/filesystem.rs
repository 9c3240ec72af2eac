mod native;

brig_attacks::filesystem!(native::ground);
