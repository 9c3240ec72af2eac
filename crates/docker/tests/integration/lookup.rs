//! The files for looking up names, which are in a volume of the engine.

use std::sync::Arc;

use crate::common::Engine;
use crate::common::proxy::{Fault, Proxy};
use brig_docker::{DockerBackend, Options};
use brig_sandbox::{AgentId, Error, Request, Sandbox, SessionConfig};

async fn said(
    backend: &Arc<DockerBackend>,
    config: SessionConfig,
    script: &str,
) -> Result<String, Error> {
    let sandbox = Sandbox::builder(backend.clone()).build()?;
    let agent: AgentId = "lookup".parse()?;
    let request = Request::command(["sh", "-c", script]);
    let outcome = sandbox.run_once(&agent, config, request).await?.outcome;
    let both = [outcome.stdout.bytes, outcome.stderr.bytes].concat();
    Ok(String::from_utf8_lossy(&both).into_owned())
}

const SCRIPT: &str = "
    getent hosts localhost | tr -s ' ' | cut -d' ' -f2
    grep -c localhost /etc/hosts
    cat /etc/resolv.conf /etc/hostname; echo
    sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '
    for file in /etc/hosts /etc/resolv.conf; do (echo x >> $file) 2>/dev/null && echo written; done
    echo end";

fn volumes(engine: &Engine) -> Vec<String> {
    let answer = engine.curl(
        "GET",
        "/volumes?filters=%7B%22label%22%3A%5B%22brig.lookup%22%5D%7D",
    );
    let all: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let all = all["Volumes"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|volume| volume["Name"].as_str().expect("a name").to_owned())
        .collect()
}

async fn names_are_looked_up(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("the files for names on {runtime}")) else {
        return;
    };
    let backend = engine.backend().await;
    let text = said(&backend, engine.config(runtime), SCRIPT).await;
    let expected = "localhost\n2\nnameserver 127.0.0.1\nbrig\nlo\nend\n";
    assert_eq!(text.expect("it runs").replace("\n\n", "\n"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_looked_up_on_runc() {
    names_are_looked_up("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_looked_up_on_crun() {
    names_are_looked_up("crun").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_looked_up_on_gvisor() {
    names_are_looked_up("gvisor").await;
}

/// As `docker volume prune` does, between two runs of one process and before several that begin at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_volume_is_made_again() {
    let Some(engine) = Engine::find("a missing volume") else {
        return;
    };
    let backend = engine.backend().await;
    let script = "grep -c localhost /etc/hosts; cat /etc/resolv.conf";
    let expected = "2\nnameserver 127.0.0.1\n";
    for _ in 0..2 {
        let text = said(&backend, engine.config("runc"), script).await;
        assert_eq!(text.expect("it runs"), expected);
        let all = volumes(&engine);
        assert_eq!(all.len(), 1, "{all:?}");
        // Other tests may make it again at once.
        engine.curl("DELETE", &format!("/volumes/{}", all[0]));
    }
    let several = (0..3).map(|_| async {
        let backend = engine.backend().await;
        said(&backend, engine.config("runc"), script).await
    });
    for text in futures_util::future::join_all(several).await {
        assert_eq!(text.expect("it runs"), expected);
    }
    assert_eq!(volumes(&engine).len(), 1);
}

/// Without volumes the engine sets up a network to have these files: slower, and the same inside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_volumes_makes_the_files_itself() {
    let Some(engine) = Engine::find("an engine without volumes") else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let proxy = Proxy::start(&engine.socket, &folder.path().join("socket"));
    proxy.fail("/volumes/", Fault::Error);
    let options = Options {
        address: Some(brig_docker::Address::Unix(proxy.socket.clone())),
        ..Options::default()
    };
    let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
    let text = said(
        &backend,
        engine.config("runc"),
        "cat /etc/resolv.conf; grep -c localhost /etc/hosts",
    );
    let text = text.await.expect("it runs");
    assert!(
        text.contains("nameserver 127.0.0.1\n") && text.ends_with("2\n"),
        "{text}"
    );
}

/// The guest does not believe that there is no network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_a_network_is_refused() {
    let test = "an engine that adds a network";
    let Some(engine) = Engine::find(test) else {
        return;
    };
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    if routes.lines().count() < 2 {
        return brig_testing::skip(test, "this machine has no route");
    }
    let folder = tempfile::tempdir().expect("folder");
    let proxy = Proxy::start(&engine.socket, &folder.path().join("socket"));
    let options = Options {
        address: Some(brig_docker::Address::Unix(proxy.socket.clone())),
        ..Options::default()
    };
    let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
    let control = said(&backend, engine.config("runc"), "echo control").await;
    assert_eq!(control.expect("it runs"), "control\n");
    proxy.fail("/containers/create", Fault::Networked);
    let error = said(&backend, engine.config("runc"), "echo ran").await;
    let error = error.expect_err("there is a network");
    assert_eq!(error.code(), "backend.setup", "{error}");
    assert!(error.to_string().contains("without a network"), "{error}");
}
