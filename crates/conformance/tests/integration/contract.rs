//! The same cases as on any backend. Cases that it cannot run are skipped by a missing control, never by a name.

use std::sync::Arc;

use brig_conformance::Fixture;
use brig_conformance::fake::{RemoteFake, Service};

/// Controls that it does not claim, and what else it lacks: interpreters, and directories with saved
/// files that a case could change.
const REASONS: &[&str] = &[
    "linux-userland is not enforced here",
    "mounts is not enforced here",
    "signals is not enforced here",
    "tools is not enforced here",
    "no interpreter for",
    "the backend keeps saved files itself",
];

async fn fixture() -> Option<Fixture> {
    let backend = RemoteFake::new(Service::default());
    let fixture = Fixture::new(Arc::new(backend)).with_programs(RemoteFake::program);
    Some(fixture.with_reasons(REASONS))
}

brig_conformance::contract!(fixture);
