//! Containers that are kept ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::Engine;
use brig_docker::{DockerBackend, Options};
use brig_linux::process_stat::ProcessStat;
use brig_sandbox::{AgentId, Sandbox, Session};

/// Those of this process.
fn own(engine: &Engine) -> Vec<String> {
    let stat = ProcessStat::of(std::process::id());
    let started = stat.expect("own stat").start_time;
    engine.containers(&format!("brig.owner%3D{}.{started}", std::process::id()))
}

async fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn say(session: &Session, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let report = session.run(command).await.expect("a report");
    let outcome = report.outcome;
    String::from_utf8(outcome.stdout.bytes).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_is_used_once_and_replaced_if_it_is_gone() {
    brig_testing::alone!();
    let Some(engine) = Engine::find("docker pool") else {
        return;
    };
    let options = Options {
        warm: 1,
        ..engine.options()
    };
    let backend = DockerBackend::connect(options).await.expect("an engine");
    let sandbox = Sandbox::builder(Arc::new(backend))
        .build()
        .expect("sandbox");
    let agent: AgentId = "agent".parse().expect("name");
    let create = || sandbox.create_session(&agent, None, engine.config("runc"));

    let first = create().await.expect("a session");
    assert_eq!(say(&first, "echo one > file; cat file").await, "one\n");
    until("one waits beside it", || own(&engine).len() == 2).await;
    let waiting = own(&engine);
    first.destroy().await.expect("an end");

    let second = create().await.expect("a session");
    assert_eq!(
        say(&second, "cat file 2>/dev/null; echo two").await,
        "two\n"
    );
    until("another one waits", || own(&engine).len() == 2).await;
    let used = own(&engine)
        .iter()
        .filter(|id| waiting.contains(id))
        .count();
    assert_eq!(used, 1, "it was the one that waited");
    second.destroy().await.expect("an end");

    // Somebody removes the one that waits.
    until("only that is left", || own(&engine).len() == 1).await;
    for id in own(&engine) {
        engine.curl("DELETE", &format!("/containers/{id}?force=true"));
    }
    let third = create().await.expect("a session all the same");
    assert_eq!(say(&third, "echo three").await, "three\n");
    third.destroy().await.expect("an end");

    drop((first, second, third, sandbox));
    until("nothing is left", || own(&engine).is_empty()).await;
}
