mod native;

brig_attacks::stubborn!(native::ground);
