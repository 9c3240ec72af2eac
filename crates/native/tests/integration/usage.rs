//! The time that an execution takes of processors, also where nobody waits for whoever took it.

use std::sync::Arc;
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::config::Limit;
use brig_sandbox::{AgentId, Event, Language, Sandbox, Session, SessionConfig};

/// A child says when it has taken its time, however busy the machine is, and gives a watcher the time to
/// look before it goes on.
const BURN: &str = "\
import os, signal, sys, time
reader, writer = os.pipe()
def burn(seconds):
    while time.process_time() < seconds: pass
def child(seconds, then=lambda: os._exit(0)):
    if os.fork() == 0:
        burn(seconds)
        time.sleep(0.3)
        os.write(writer, b'x')
        then()
def burnt():
    os.read(reader, 1)
";

async fn session() -> Session {
    let mut config = SessionConfig::default();
    config.limits.timeout = Limit::asked(Duration::from_secs(60));
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()));
    let sandbox = sandbox.build().unwrap();
    let agent: AgentId = "usage".parse().unwrap();
    sandbox.create_session(&agent, None, config).await.unwrap()
}

async fn cpu(session: &Session, code: &str) -> Duration {
    let code = format!("{BURN}{code}");
    let report = session.execute_code(Language::Python, code).await.unwrap();
    let outcome = report.outcome;
    assert_eq!(outcome.exit_code, 0, "{outcome:?}");
    outcome.usage.cpu
}

/// More than the looks of a watcher can miss.
const TAKEN: Duration = Duration::from_millis(500);
const LITTLE: Duration = Duration::from_millis(400);

#[tokio::test]
async fn time_is_counted_whoever_took_it() {
    let session = session().await;
    let idle = cpu(&session, "time.sleep(1)").await;
    assert!(idle < LITTLE, "control: {idle:?}");
    for (name, code) in [
        ("itself", "burn(0.7)"),
        ("a child that is waited for", "child(0.7)\nos.wait()"),
        (
            "a child that still runs",
            "child(0.7, lambda: time.sleep(60))\nburnt()",
        ),
        (
            "a child that has left",
            "if os.fork() == 0:\n    os.setsid()\n    child(0.7, lambda: time.sleep(60))\n    os._exit(0)\n\
             os.wait()\nburnt()",
        ),
        (
            "a child that is not waited for",
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nchild(0.7)\nburnt()",
        ),
        (
            "a grandchild below one that waits for nobody",
            "if os.fork() == 0:\n    signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    child(0.7)\n    \
             burnt()\n    os._exit(0)\nos.wait()",
        ),
    ] {
        let taken = cpu(&session, code).await;
        assert!(taken >= TAKEN, "{name}: {taken:?}");
        let after = cpu(&session, "pass").await;
        assert!(after < LITTLE, "after {name}: {after:?}");
    }
}

#[tokio::test]
async fn time_is_counted_of_what_was_ended() {
    let session = session().await;
    // Both have taken enough when they say so, however busy the machine is.
    let code = format!("{BURN}child(0.4, lambda: None)\nburn(0.4)\nos.write(1, b'x')\nburn(60)");
    let mut request = brig_sandbox::Request::code(Language::Python, code);
    request.stream = true;
    let mut running = session.start(request).await.unwrap();
    let mut said = 0;
    while said < 2 {
        if let Event::Stdout(bytes) = running.next_event().await.unwrap() {
            said += bytes.len();
        }
    }
    // A watcher has looked by then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.cancel();
    let outcome = running.wait().await.unwrap().outcome;
    assert!(outcome.killed.is_some(), "{outcome:?}");
    assert!(outcome.usage.cpu >= TAKEN, "{:?}", outcome.usage);
}
