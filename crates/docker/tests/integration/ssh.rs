//! An engine behind `ssh`. A program of that name takes the place of the real one: it notes its arguments, and
//! leads to the engine of the tests.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::common::Engine;
use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::config::MountSpec;
use brig_sandbox::{AgentId, Language, Request, Sandbox, SessionConfig};

const PROGRAM: &str = r#"#!/bin/sh
echo "$*" >> LOG
case "$*" in
  *" -- engine.invalid docker system dial-stdio")
    exec docker --host unix://SOCKET system dial-stdio ;;
esac
# The end of the connection is seen before the reason is there.
exec >&-
sleep 0.3
echo "me@other.invalid: Permission denied (publickey)." >&2
exit 255
"#;

async fn connect(programs: &Path, address: &str) -> Result<DockerBackend, brig_sandbox::Error> {
    let options = Options {
        address: Some(Address::parse(address, None).expect("an address")),
        programs: Some(programs.into()),
        ..Options::default()
    };
    DockerBackend::connect(options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_behind_ssh_is_used() {
    let test = "an engine behind ssh";
    let Some(engine) = Engine::find(test) else {
        return;
    };
    if std::process::Command::new("docker")
        .arg("--version")
        .output()
        .is_err()
    {
        return brig_testing::skip(test, "the command docker is missing");
    }
    let folder = tempfile::tempdir().expect("folder");
    let (programs, log) = (folder.path(), folder.path().join("log"));
    let text = PROGRAM
        .replace("LOG", &log.display().to_string())
        .replace("SOCKET", &engine.socket.display().to_string());
    let program = programs.join("ssh");
    std::fs::write(&program, text).expect("a program");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, all).expect("a mode");

    let backend = connect(programs, "ssh://me@engine.invalid:2222").await;
    let backend = Arc::new(backend.expect("it answers"));
    let sandbox = Sandbox::builder(backend).build().expect("a sandbox");
    let agent: AgentId = "agent".parse().expect("a name");
    let config = engine.config("runc");
    let request = Request::code(Language::Python, "print(6 * 7)");
    let report = sandbox.run_once(&agent, config.clone(), request).await;
    assert_eq!(report.expect("it runs").outcome.stdout.bytes, b"42\n");
    let data = tempfile::tempdir().expect("folder");
    let mount = MountSpec {
        source: data.path().canonicalize().expect("a path"),
        target: "/data".into(),
        writable: false,
    };
    let with_mount = SessionConfig {
        mounts: vec![mount],
        ..config.clone()
    };
    let request = Request::command(["true"]);
    let error = sandbox.run_once(&agent, with_mount, request).await;
    let error = error.expect_err("files of another machine");
    assert_eq!(error.code(), "input.mount", "{error}");

    // Code that could write there would be started on the host.
    let within = SessionConfig {
        workspace: Some(programs.into()),
        ..config
    };
    let request = Request::command(["true"]);
    let error = sandbox.run_once(&agent, within, request).await;
    let error = error.expect_err("the program could be changed");
    assert!(error.to_string().contains("could change them"), "{error}");

    let error = connect(programs, "ssh://other.invalid").await;
    let error = error.expect_err("no access");
    assert_eq!(error.code(), "engine.unreachable", "{error}");
    assert!(error.to_string().contains("Permission denied"), "{error}");
    let log = std::fs::read_to_string(log).expect("what was asked for");
    let first = log.lines().next().unwrap_or_default();
    let expected = "-T -l me -p 2222 -- engine.invalid docker system dial-stdio";
    assert!(first.ends_with(expected), "{first}");
    assert!(first.contains("BatchMode=yes"), "{first}");
}
