//! The contract that every backend keeps, on each runtime.

use crate::common::{Engine, GVISOR_GROUPS, ORDINARY};
use brig_conformance::Fixture;

async fn fixture_of(runtime: &str) -> Option<Fixture> {
    let engine = Engine::with(runtime, &format!("conformance on {runtime}"))?;
    let fixture = Fixture::new(engine.backend().await);
    Some(
        fixture
            .with_config(engine.config(runtime))
            .with_folder_owner(ORDINARY),
    )
}

macro_rules! on {
    ($($runtime:ident),+) => {
        $(mod $runtime {
            async fn fixture() -> Option<brig_conformance::Fixture> {
                super::fixture_of(stringify!($runtime)).await
            }

            brig_conformance::contract!(fixture);
        })+
    };
}

on!(runc, crun, gvisor);

/// Where control groups bound gVisor as a whole, and the guest counts inside. Without the group `mounts`: on gVisor
/// all of its cases are skipped, because mounts are not enforced there.
mod gvisor_groups {
    async fn fixture() -> Option<brig_conformance::Fixture> {
        let fixture = super::fixture_of(super::GVISOR_GROUPS).await?;
        Some(fixture.with_late_count())
    }

    brig_conformance::contract!(fixture:
        basics output stdin env limits cancel files sessions durable checkpoints tools
    );
}
