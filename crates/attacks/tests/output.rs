mod native;

brig_attacks::output!(native::ground);
