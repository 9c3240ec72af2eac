//! Containers belong to the process that made them, and go with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::Engine;
use brig_linux::process_stat::ProcessStat;
use brig_sandbox::{Backend, Error, InitialState, Instance, Plan, Request, Sandbox};
use brig_testing::{again, test_name};

const CHILD: &str = "BRIG_TEST_OWNER";

/// The other process: makes a sandbox, says so, and waits to be killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let Some(engine) = Engine::find("another owner") else {
        return;
    };
    let backend = engine.backend().await;
    let plan = Plan::make(
        &engine.config("runc"),
        backend.as_ref(),
        InitialState::Empty,
    )
    .await
    .expect("a plan");
    let _instance = backend.create(&plan).await.expect("an instance");
    println!("\nready");
    std::future::pending::<()>().await;
}

fn owner() -> Child {
    let mut child = again(&test_name!(another_owner))
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let mut lines = output.lines();
    assert!(
        lines.any(|line| line.expect("a line") == "ready"),
        "it never got ready"
    );
    child
}

/// Those of one process.
fn of(engine: &Engine, child: &Child) -> Vec<String> {
    let stat = ProcessStat::of(child.id());
    let started = stat.expect("its stat").start_time;
    engine.containers(&format!(
        "{}%3D{}.{started}",
        brig_docker::OWNER_LABEL,
        child.id()
    ))
}

fn is_there(engine: &Engine, id: &str) -> bool {
    let output = engine.curl("GET", &format!("/containers/{id}/json"));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    answer["Id"] == id
}

fn is_running(engine: &Engine, id: &str) -> bool {
    let output = engine.curl("GET", &format!("/containers/{id}/json"));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    answer["State"]["Running"] == true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_are_removed_and_nobody_elses() {
    let Some(engine) = Engine::find("orphans") else {
        return;
    };
    let backend = engine.backend().await;
    let (mut dying, mut living) = (owner(), owner());
    let (orphan, other) = (of(&engine, &dying), of(&engine, &living));
    assert_eq!((orphan.len(), other.len()), (1, 1));
    backend.sweep().await.expect("swept");
    assert!(is_there(&engine, &orphan[0]), "its owner was alive");
    dying.kill().expect("killed");
    dying.wait().expect("waited for");
    let begun = Instant::now();
    while is_running(&engine, &orphan[0]) {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "it runs on without its owner"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(backend.sweep().await.expect("swept") >= 1);
    assert!(!is_there(&engine, &orphan[0]), "an orphan stays");
    assert!(
        is_running(&engine, &other[0]),
        "somebody else's was touched"
    );
    living.kill().expect("killed");
    living.wait().expect("waited for");
    backend.sweep().await.expect("swept");
    assert!(!is_there(&engine, &other[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_dropped_goes_by_itself() {
    brig_testing::alone!();
    let Some(engine) = Engine::find("instances that are dropped") else {
        return;
    };
    let backend = engine.backend().await;
    let plan = Plan::make(
        &engine.config("runc"),
        backend.as_ref(),
        InitialState::Empty,
    )
    .await
    .expect("a plan");
    let instance = backend.create(&plan).await.expect("an instance");
    let before = mine(&engine);
    assert!(!before.is_empty(), "control");
    drop(instance);
    // Given up in the middle of being made.
    let making = tokio::time::timeout(Duration::from_millis(150), backend.create(&plan)).await;
    drop(making);
    let begun = Instant::now();
    while before.iter().any(|id| is_there(&engine, id)) {
        assert!(begun.elapsed() < Duration::from_secs(120), "it stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn mine(engine: &Engine) -> Vec<String> {
    let stat = ProcessStat::of(std::process::id());
    let started = stat.expect("own stat").start_time;
    engine.containers(&format!(
        "{}%3D{}.{started}",
        brig_docker::OWNER_LABEL,
        std::process::id()
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_somebody_removes_is_noticed_and_replaced() {
    brig_testing::alone!();
    let Some(engine) = Engine::find("containers that others remove") else {
        return;
    };
    let backend = engine.backend().await;
    let folder = tempfile::tempdir().expect("folder");
    let sandbox = Sandbox::builder(backend.clone())
        .state_dir(folder.path())
        .build()
        .expect("sandbox");
    let agent = "agent".parse().expect("a name");
    let known = mine(&engine);
    let session = sandbox
        .create_session(&agent, None, engine.config("runc"))
        .await
        .expect("session");
    let running = session
        .start(Request::command(["sleep", "60"]))
        .await
        .expect("it starts");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let new: Vec<String> = mine(&engine)
        .into_iter()
        .filter(|id| !known.contains(id))
        .collect();
    for id in &new {
        engine.curl("DELETE", &format!("/containers/{id}?force=true"));
    }
    let ended = tokio::time::timeout(Duration::from_secs(50), running.wait()).await;
    assert!(matches!(ended, Ok(Err(Error::Interrupted(_)))), "{ended:?}");
    let again = session
        .start(Request::command(["true"]))
        .await
        .expect("it starts again");
    assert!(again.wait().await.expect("it runs").outcome.success());
    session.destroy().await.expect("destroyed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroying_is_quick_and_may_be_repeated() {
    let Some(engine) = Engine::find("destroying") else {
        return;
    };
    let backend = engine.backend().await;
    let plan = Plan::make(
        &engine.config("runc"),
        backend.as_ref(),
        InitialState::Empty,
    )
    .await
    .expect("a plan");
    let instance: Arc<dyn Instance> = backend.create(&plan).await.expect("an instance").into();
    let begun = Instant::now();
    instance.destroy().await.expect("destroyed");
    let took = begun.elapsed();
    instance.destroy().await.expect("destroyed already");
    println!("destroyed in {took:?}");
    // An engine gives a container that is stopped 10 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert!(!instance.is_alive());
}
