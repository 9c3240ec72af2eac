//! An engine that fails, hangs or goes away at any step: there is an error with a name, nothing is
//! left behind, and afterwards everything works again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::proxy::{Fault, Proxy};
use crate::common::{Engine, with_option};
use brig_docker::{Address, DockerBackend, Options};
use brig_linux::process_stat::ProcessStat;
use brig_sandbox::{Backend, Error, Event, InitialState, Plan, Request, Sandbox, SessionConfig};

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

/// One that waits two seconds for an answer. On a slow machine it needs several tries to connect.
async fn connect_impatiently(proxy: &Proxy) -> DockerBackend {
    for _ in 0..30 {
        if let Ok(backend) = connect_for(proxy, Duration::from_secs(2)).await {
            return backend;
        }
    }
    panic!("control: it connects")
}

/// Makes a sandbox and takes it away again.
async fn try_once(backend: &DockerBackend, config: &SessionConfig) -> Result<(), Error> {
    let plan = Plan::make(config, backend, InitialState::Empty).await?;
    let instance = backend.create(&plan).await?;
    instance.destroy().await
}

fn label() -> String {
    // Of this process alone: others may use the engine too.
    let stat = ProcessStat::of(std::process::id());
    let started = stat.expect("own stat").start_time;
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
            begun.elapsed() < Duration::from_secs(300),
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
    brig_testing::alone!();
    let Some(engine) = Engine::find("engines that fail") else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let proxy = Proxy::start(&engine.socket, &folder.path().join("s"));
    let config = engine.config("runc");
    let backend = connect(&proxy).await.expect("control: it connects");
    try_once(&backend, &config)
        .await
        .expect("control: it works");
    let impatient = connect_impatiently(&proxy).await;

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
                    begun.elapsed() < Duration::from_secs(300),
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
                if fresh && fault == Fault::Error {
                    // A process that ends now could not remove it later.
                    assert_eq!(engine.containers(&label()), [""; 0], "{what}");
                }
                proxy.repair();
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
    brig_testing::alone!();
    let Some(engine) = Engine::find("engines that are slow or absent") else {
        return;
    };
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
    brig_testing::alone!();
    let Some(engine) = Engine::find("engines that stop and start") else {
        return;
    };
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
        let outcome = report.outcome;
        Ok::<_, Error>(String::from_utf8_lossy(&outcome.stdout.bytes).into_owned())
    };
    run("echo kept > file").await.expect("control");
    let mut request = Request::command(["/bin/sh", "-c", "echo so far; exec sleep 60"]);
    request.stream = true;
    let mut running = session.start(request).await.expect("it starts");
    while !matches!(running.next_event().await, Some(Event::Stdout(_))) {}
    let id = running.id().clone();
    drop(proxy);
    let ended = tokio::time::timeout(Duration::from_secs(50), running.wait()).await;
    let error = ended.expect("it is noticed").expect_err("it is lost");
    let Error::Interrupted(known) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(error.code(), "backend.lost");
    let object = known.report.to_json();
    assert_eq!(object["execution_id"], id.as_str());
    assert_eq!(object["decision"]["allowed"], true);
    assert_eq!(object["result"]["stdout"], "so far\n");
    assert_eq!(object["status"], "failed");
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

/// Several processes may use an image for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_prepared_once_at_a_time() {
    brig_testing::alone!();
    let Some(engine) = Engine::find("one preparation at a time") else {
        return;
    };
    let image = NewImage::of(&engine);
    let config = with_option(engine.config("runc"), "image", image.name.clone());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        // Backends have nothing in common but the engine, as in several processes.
        let (backend, config) = (engine.backend().await, config.clone());
        tasks.spawn(async move { try_once(&backend, &config).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic").expect("it works");
    }
    assert_eq!(image.derived().len(), 1);
    assert_eq!(engine.containers(&label()), [""; 0]);
}

/// An image that nobody has used. Removed with what was derived from it.
struct NewImage<'a> {
    engine: &'a Engine,
    name: String,
    id: String,
}

impl<'a> NewImage<'a> {
    fn of(engine: &'a Engine) -> Self {
        let tag = std::process::id();
        let body = serde_json::json!({ "Image": engine.image, "Cmd": ["true"] });
        let container = engine.ask("/containers/create", &body);
        let container = container["Id"].as_str().expect("an id").to_owned();
        let body = serde_json::json!({ "Labels": { "new": tag.to_string() } });
        let path = format!("/commit?container={container}&repo=brig-test-new&tag={tag}");
        let id = engine.ask(&path, &body);
        engine.curl("DELETE", &format!("/containers/{container}"));
        Self {
            engine,
            name: format!("brig-test-new:{tag}"),
            id: id["Id"].as_str().expect("an id").to_owned(),
        }
    }

    fn derived(&self) -> Vec<String> {
        let base = self.id.replace(':', "%3A");
        let filters = format!("%7B%22label%22%3A%5B%22brig.base%3D{base}%22%5D%7D");
        let output = (self.engine).curl("GET", &format!("/images/json?filters={filters}"));
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = all.as_array().expect("a list").iter();
        all.map(|image| image["Id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

impl Drop for NewImage<'_> {
    fn drop(&mut self) {
        for image in self.derived().iter().chain([&self.name]) {
            self.engine
                .curl("DELETE", &format!("/images/{image}?force=true"));
        }
    }
}
