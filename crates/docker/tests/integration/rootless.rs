//! Docker that an ordinary user runs, without root and mostly without control groups.

use brig_conformance::Fixture;
use brig_sandbox::{Control, SessionConfig};

use crate::common::{Engine, ORDINARY};
use crate::{file_cache, ids, podman};

fn engine(test: &str) -> Option<Engine> {
    Engine::of(test, "BRIG_TEST_DOCKER_ROOTLESS")
}

/// Whether an ordinary user has control groups depends on the machine.
fn config(engine: &Engine) -> SessionConfig {
    let mut config = engine.config("auto");
    config
        .waive
        .extend([Control::Cpu, Control::Memory, Control::Processes]);
    config
}

async fn fixture() -> Option<Fixture> {
    let engine = engine("conformance on rootless Docker")?;
    let fixture = Fixture::new(engine.backend().await);
    Some(fixture.with_config(config(&engine)))
}

mod conformance {
    use super::fixture;

    brig_conformance::contract!(fixture);
}

const LOOKUP: &str = "127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
ff00::0\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
nameserver 127.0.0.1
";

#[tokio::test]
async fn it_runs_as_an_ordinary_user() {
    let Some(engine) = engine("rootless Docker") else {
        return;
    };
    let script = "id -u; cat /proc/self/uid_map | tr -s ' '";
    let said = ids::said(&engine, config(&engine), script).await;
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("65534"), "{said}");
    assert!(
        lines.all(|line| !line.trim().ends_with("4294967295")),
        "{said}"
    );
    podman::closed(&engine, config(&engine), LOOKUP).await;
}

#[tokio::test]
async fn a_private_directory_is_used_by_its_owner() {
    let Some(engine) = engine("private directories on rootless Docker") else {
        return;
    };
    ids::check_workspace(&engine, config(&engine), ORDINARY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_files_are_sent_once() {
    if let Some(engine) = engine("cached files on rootless Docker") {
        let config = config(&engine);
        file_cache::check_sent_once(engine, config).await;
    }
}

/// There the user of the programs owns `/dev`.
#[tokio::test]
async fn only_what_is_limited_can_be_written() {
    let Some(engine) = engine("writable places on rootless Docker") else {
        return;
    };
    ids::check_limited_places(&engine, config(&engine), ORDINARY).await;
}
