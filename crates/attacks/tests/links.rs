mod native;

brig_attacks::links!(native::ground);
