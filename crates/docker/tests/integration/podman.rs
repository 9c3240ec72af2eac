//! The contract on Podman, and what its API does otherwise than Docker's.

use brig_conformance::Fixture;
use brig_sandbox::{Control, SessionConfig};

use crate::common::{Engine, ORDINARY};
use crate::{file_cache, ids};

const HIDDEN: [&str; 4] = [
    "/proc/kallsyms",
    "/proc/interrupts",
    "/proc/keys",
    "/dev/mqueue",
];

fn engine(test: &str) -> Option<Engine> {
    Engine::of(test, "BRIG_TEST_PODMAN")
}

async fn fixture() -> Option<Fixture> {
    let engine = engine("conformance on Podman")?;
    let fixture = Fixture::new(engine.backend().await);
    Some(
        fixture
            .with_config(engine.config("auto"))
            .with_folder_owner(ORDINARY),
    )
}

mod conformance {
    use super::fixture;

    brig_conformance::contract!(fixture);
}

#[tokio::test]
async fn a_private_directory_is_used_by_its_owner() {
    let Some(engine) = engine("private directories on Podman") else {
        return;
    };
    ids::check_workspace(&engine, engine.config("auto"), ORDINARY).await;
}

/// Podman ignores some of what Docker takes, and adds places of its own.
#[tokio::test]
async fn it_is_as_closed_as_a_container_of_docker() {
    let Some(engine) = engine("what Podman leaves open") else {
        return;
    };
    closed(&engine, engine.config("auto"), LOOKUP).await;
}

/// What Brig mounts as `/etc/hosts` and `/etc/resolv.conf`.
const LOOKUP: &str = "127.0.0.1\tlocalhost brig\n::1\tlocalhost\nnameserver 127.0.0.1\nsearch .\n";

/// `lookup`: what is in `/etc/hosts` and `/etc/resolv.conf`.
pub(crate) async fn closed(engine: &Engine, config: SessionConfig, lookup: &str) {
    let hidden = HIDDEN.join(" ");
    let script = format!(
        "for place in /run /var/tmp /etc /dev/mqueue /sys/fs/cgroup; do
           touch $place/made 2>/dev/null && echo \"$place can be written\"; done
         for path in {hidden}; do
           if [ -d $path ]; then ls -A $path; else head -c 1 $path; fi 2>/dev/null; done
         cat /etc/hosts /etc/resolv.conf
         grep -E '^(NoNewPrivs|Seccomp):' /proc/1/status"
    );
    let said = ids::said(engine, config, &script).await;
    assert_eq!(said, format!("{lookup}NoNewPrivs:\t1\nSeccomp:\t2\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_files_are_sent_once() {
    if let Some(engine) = engine("cached files on Podman") {
        let config = engine.config("auto");
        file_cache::check_sent_once(engine, config).await;
    }
}

#[tokio::test]
async fn a_runtime_that_it_would_ignore_is_refused() {
    let Some(engine) = engine("runtimes of Podman") else {
        return;
    };
    let backend = engine.backend().await;
    for runtime in ["kata", "gvisor", "runc"] {
        let refused = brig_sandbox::Backend::probe(backend.as_ref(), &engine.config(runtime)).await;
        let refused = refused.expect_err(runtime);
        assert_eq!(refused.code.to_string(), "engine.runtime", "{runtime}");
    }
}

/// Run by an ordinary user, without root. Its user is root in a user namespace and nobody special outside.
mod rootless {
    use super::*;

    fn engine(test: &str) -> Option<Engine> {
        Engine::of(test, "BRIG_TEST_PODMAN_ROOTLESS")
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
        let engine = engine("conformance on rootless Podman")?;
        let fixture = Fixture::new(engine.backend().await);
        Some(fixture.with_config(config(&engine)))
    }

    /// What depends on ids and limits, in half a minute; all of it takes two. The rest is the same as on Podman of
    /// root, where all of the contract is tried.
    mod conformance {
        use super::fixture;

        brig_conformance::contract!(fixture: basics limits cancel files mounts sessions);
    }

    #[tokio::test]
    async fn it_runs_as_an_ordinary_user() {
        let Some(engine) = engine("rootless Podman") else {
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
        closed(&engine, config(&engine), LOOKUP).await;
    }

    #[tokio::test]
    async fn a_private_directory_is_used_by_its_owner() {
        let Some(engine) = engine("private directories on rootless Podman") else {
            return;
        };
        ids::check_workspace(&engine, config(&engine), ORDINARY).await;
    }

    /// There the user of the programs owns `/dev`.
    #[tokio::test]
    async fn only_what_is_limited_can_be_written() {
        let Some(engine) = engine("writable places on rootless Podman") else {
            return;
        };
        ids::check_limited_places(&engine, config(&engine), ORDINARY).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unchanged_files_are_sent_once() {
        if let Some(engine) = engine("cached files on rootless Podman") {
            let config = config(&engine);
            file_cache::check_sent_once(engine, config).await;
        }
    }
}
