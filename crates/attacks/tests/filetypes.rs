mod native;

brig_attacks::filetypes!(native::ground);
