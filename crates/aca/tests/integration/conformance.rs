//! The same cases as on any backend, as far as the stand-in can run them. Left out are `mounts` and `tools`,
//! which the backend refuses, and of `limits` what a sandbox of this machine enforces in place of a virtual
//! machine of Azure.

use std::sync::Arc;

use brig_conformance::Fixture;

use crate::stand_in::StandIn;

const REASONS: &[&str] = &[
    "mounts is not enforced here",
    "disk is not enforced here",
    "no interpreter for",
    "the instance is no process of this machine",
    "the backend keeps saved files itself",
    "usage is not measured in full here",
];

async fn fixture() -> Option<Fixture> {
    let stand_in = StandIn::start().await;
    let fixture = Fixture::new(Arc::new(stand_in.backend())).without_usage();
    // By which the helper finds the processes of an execution.
    let fixture = fixture.with_variables(&["BRIG_EXECUTION"]);
    Some(fixture.with_reasons(REASONS))
}

brig_conformance::contract!(fixture: basics output stdin env cancel files sessions durable checkpoints);

/// The cases of `limits` that the backend decides itself.
mod limits {
    async fn case(name: &str) {
        if let Some(fixture) = super::fixture().await {
            brig_conformance::run(name, &brig_testing::test_name!(), fixture).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_session_lives_on_after_a_deadline() {
        case("limits::the_session_lives_on_after_a_deadline").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn values_out_of_range_are_refused() {
        case("limits::values_out_of_range_are_refused").await;
    }
}
