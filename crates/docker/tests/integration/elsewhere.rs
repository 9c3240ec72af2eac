//! A Unix socket that leads to an engine with other files, as a forwarded one does.

use std::path::Path;
use std::process::Command;

use crate::common::Engine;
use brig_sandbox::config::MountSpec;
use brig_sandbox::{AgentId, Error, Report, Request, Sandbox, SessionConfig};
use brig_testing::{again_by, passes, test_name};

const FOLDER: &str = "BRIG_TEST_OTHER_FILES";

/// Shows `name` in `folder`, with Brig's state in the same place.
async fn run(engine: &Engine, folder: &Path, name: &str) -> Result<Report, Error> {
    let sandbox = Sandbox::builder(engine.backend().await)
        .state_dir(folder.join("state"))
        .build()
        .expect("sandbox");
    let mount = MountSpec {
        source: folder.join(name),
        target: "/data".into(),
        writable: false,
    };
    let config = SessionConfig {
        mounts: vec![mount],
        ..engine.config("runc")
    };
    let agent: AgentId = "agent".parse().expect("a name");
    let request = Request::command(["cat", "/data/file"]);
    sandbox.run_once(&agent, config, request).await
}

fn fill(folder: &Path, names: &[&str]) {
    for name in names {
        std::fs::create_dir_all(folder.join(name)).expect("a folder");
        std::fs::write(folder.join(name).join("file"), name).expect("a file");
    }
}

/// In a mount namespace where the folder has other files than the engine sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_other_files() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let (folder, engine) = (Path::new(&folder), Engine::find("other files"));
    let engine = engine.expect("the engine of the test");
    fill(folder, &["both", "here"]);
    for name in ["both", "here"] {
        let error = run(&engine, folder, name).await.expect_err(name);
        let code = error.code();
        let known = code == "engine.failed" || code == "backend.setup";
        assert!(known, "{name}: {code} {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_may_lead_to_another_machine() {
    let test = "an engine with other files";
    let Some(engine) = Engine::find(test) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        brig_testing::skip(test, "only root can have other files than the engine");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().canonicalize().expect("a path");
    fill(&path, &["both"]);
    let control = run(&engine, &path, "both").await.expect("control: it runs");
    assert_eq!(control.outcome.stdout.bytes, b"both", "{control:?}");
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg("mount -t tmpfs other \"$0\" && exec \"$@\"")
        .arg(&path);
    let mut child = again_by(unshare, &test_name!(with_other_files));
    child.env(FOLDER, &path);
    passes(child);
    // The engine, which is root, made nothing that was missing.
    assert!(!path.join("here").exists());
    let state = std::fs::read_dir(path.join("state")).expect("the state");
    let names: Vec<_> = state
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let nonces = names
        .iter()
        .filter(|name| name.to_string_lossy().starts_with("nonce"));
    assert_eq!(nonces.count(), 0, "{names:?}");
}
