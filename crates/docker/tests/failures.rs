//! An engine that fails, hangs or goes away at any step: there is an error with a name, nothing is
//! left behind, and afterwards everything works again.

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{Backend, Error, Plan, Request, Sandbox, SessionConfig};
use common::Engine;
use proxy::{Fault, Proxy};

/// One test takes images away.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Everything that a start asks of the engine.
const STEPS: [&str; 5] = [
    "/images/",
    "/containers/create",
    "/attach?",
    "/start",
    "/containers/json",
];

/// What only the first start with an image asks.
const PREPARING: [&str; 3] = ["/containers/create", "/archive?", "/commit"];

async fn connect(proxy: &Proxy) -> Result<DockerBackend, Error> {
    connect_for(proxy, Duration::from_secs(20)).await
}

async fn connect_for(proxy: &Proxy, patience: Duration) -> Result<DockerBackend, Error> {
    DockerBackend::connect(Options {
        address: Some(Address::Unix(proxy.socket.clone())),
        patience,
        ..Options::default()
    })
    .await
}

/// Makes a sandbox and takes it away again.
async fn try_once(backend: &DockerBackend, config: &SessionConfig) -> Result<(), Error> {
    let plan = Plan::make(config, backend, Vec::new())?;
    let instance = backend.create(&plan).await?;
    instance.destroy().await
}

fn label() -> String {
    // Of this process alone: others may use the engine too.
    let stat = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let fields = stat.rsplit_once(") ").expect("a name").1.to_owned();
    let started = fields.split(' ').nth(19).expect("a start");
    format!(
        "{}%3D{}.{started}",
        brig_docker::OWNER_LABEL,
        std::process::id()
    )
}

async fn gone(engine: &Engine, what: &str) {
    let begun = Instant::now();
    while !engine.containers(&label()).is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: containers stay"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn forget_prepared_images(engine: &Engine) {
    let filters = "%7B%22label%22%3A%5B%22brig.derived%22%5D%7D";
    let output = engine.curl("GET", &format!("/images/json?filters={filters}"));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for image in all.as_array().expect("a list") {
        let id = image["Id"].as_str().expect("an id");
        engine.curl("DELETE", &format!("/images/{id}?force=true"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_may_fail() {
    let Some(engine) = Engine::find("engines that fail") else {
        return;
    };
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("folder");
    let proxy = Proxy::start(&engine.socket, &folder.path().join("s"));
    let config = engine.config("runc");
    let backend = connect(&proxy).await.expect("control: it connects");
    try_once(&backend, &config)
        .await
        .expect("control: it works");
    let impatient = connect_for(&proxy, Duration::from_secs(2)).await;
    let impatient = impatient.expect("control: it connects");

    for (steps, fresh) in [(&STEPS[..], false), (&PREPARING[..], true)] {
        for step in steps {
            for fault in [Fault::Error, Fault::Cut, Fault::Lost, Fault::Stall] {
                let what = format!("{step} {fault:?}");
                if fresh {
                    forget_prepared_images(&engine);
                }
                proxy.fail(step, fault);
                let begun = Instant::now();
                let waits = matches!(fault, Fault::Stall | Fault::Lost);
                let done = try_once(if waits { &impatient } else { &backend }, &config).await;
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "{what}: it hangs"
                );
                // Looking for what others left is no reason to fail.
                if *step != "/containers/json" {
                    let error = done.expect_err(&what);
                    let code = error.code();
                    assert!(code.starts_with("engine."), "{what}: {code} {error}");
                    if fault == Fault::Error {
                        assert!(
                            error.to_string().contains("broken on purpose"),
                            "{what}: {error}"
                        );
                    }
                    if waits {
                        assert_eq!(code, "engine.timeout", "{what}: {error}");
                    }
                }
                proxy.mend();
                try_once(&backend, &config)
                    .await
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                gone(&engine, &what).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_may_be_slow_or_absent_or_answer_nonsense() {
    let Some(engine) = Engine::find("engines that are slow or absent") else {
        return;
    };
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("folder");
    let proxy = Proxy::start(&engine.socket, &folder.path().join("s"));
    let config = engine.config("runc");
    proxy.fail("HTTP/1.1", Fault::Slow);
    let backend = connect(&proxy).await.expect("it connects slowly");
    try_once(&backend, &config).await.expect("it works slowly");
    for (fault, code) in [
        (Fault::Error, "engine.unreachable"),
        (Fault::Cut, "engine.unreachable"),
    ] {
        proxy.fail("/version", fault);
        let error = connect(&proxy).await.expect_err("no engine");
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        assert!(error.hint().is_some(), "{fault:?}");
    }
    drop(proxy);
    let error = try_once(&backend, &config).await.expect_err("no engine");
    assert_eq!(error.code(), "engine.unreachable", "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_outlives_its_engine() {
    let Some(engine) = Engine::find("engines that stop and start") else {
        return;
    };
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("s");
    let proxy = Proxy::start(&engine.socket, &socket);
    let backend = Arc::new(connect(&proxy).await.expect("it connects"));
    let state = folder.path().join("state");
    let sandbox = Sandbox::builder(backend.clone())
        .state_dir(state)
        .build()
        .expect("sandbox");
    let agent = "agent".parse().expect("a name");
    let session = sandbox
        .create_session(&agent, None, engine.config("runc"))
        .await
        .expect("session");
    let run = async |script: &str| {
        let running = session
            .start(Request::command(["/bin/sh", "-c", script]))
            .await?;
        let report = running.wait().await?;
        let outcome = report.outcome.expect("an outcome");
        Ok::<_, Error>(String::from_utf8_lossy(&outcome.stdout.bytes).into_owned())
    };
    run("echo kept > file").await.expect("control");
    let running = session
        .start(Request::command(["sleep", "60"]))
        .await
        .expect("it starts");
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(proxy);
    let ended = tokio::time::timeout(Duration::from_secs(10), running.wait()).await;
    assert!(
        ended.expect("it is noticed").is_err(),
        "nobody said that it was lost"
    );
    let error = run("cat file").await.expect_err("there is no engine");
    assert!(
        error.code().starts_with("engine.") || error.code() == "backend.lost",
        "{error}"
    );
    let _proxy = Proxy::start(&engine.socket, &socket);
    assert_eq!(run("cat file").await.expect("it is back"), "kept\n");
    session.destroy().await.expect("destroyed");
    backend.sweep().await.expect("swept");
    gone(&engine, "after a restart").await;
}
