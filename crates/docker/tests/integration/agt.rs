//! The 28 behaviours that the tests of AGT's Docker provider expect of a real engine, and Brig's answer to each.
//! The guide has them as a table.

use std::sync::Arc;
use std::time::Duration;

use crate::common::Engine;
use brig_docker::DockerBackend;
use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::config::MIB;
use brig_sandbox::{
    AgentId, Backend, CheckpointName, Control, ExecutionStatus, Language, Limit, NetworkConfig,
    Report, Request, Sandbox, Session, SessionConfig, SessionStatus,
};

const GUIDE: &str = include_str!("../../../../docs/guides/from-agt.md");

/// The behaviours in the order in which they were checked, each of which is a row of the guide.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn row(&mut self, behaviour: &str, holds: bool) {
        self.0.push(behaviour.to_owned());
        assert!(holds, "{}. {behaviour}", self.0.len());
    }
}

fn stdout(report: &Report) -> String {
    String::from_utf8_lossy(&report.outcome.stdout.bytes).into_owned()
}

async fn python(session: &Session, code: &str) -> Report {
    let report = session.execute_code(Language::Python, code).await;
    report.expect("a report")
}

async fn printed(session: &Session, code: &str) -> String {
    stdout(&python(session, code).await).trim().to_owned()
}

async fn sessions(table: &mut Table, sandbox: &Sandbox, config: &SessionConfig) -> Session {
    let (one, two): (AgentId, AgentId) = ("a1".parse().expect("id"), "a2".parse().expect("id"));
    let first = sandbox.create_session(&one, None, config.clone()).await;
    let first = first.expect("a session");
    let ready = first.status() == SessionStatus::Ready;
    let second = sandbox.create_session(&two, None, config.clone()).await;
    let second = second.expect("a session");
    let different = first.id() != second.id() && first.agent() != second.agent();
    first.destroy().await.expect("an end");
    let gone = sandbox.session_status(&one, first.id()) == SessionStatus::Destroyed;
    table.row("a session is created and destroyed", ready && gone);
    table.row("two agents have two sessions", different);
    second
}

async fn executions(table: &mut Table, session: &Session) {
    let hello = python(session, "print('hello')").await;
    let completed = hello.status() == ExecutionStatus::Completed;
    table.row(
        "code runs and its output is returned",
        completed && stdout(&hello) == "hello\n",
    );
    let code =
        "import sys\nfor i in range(3):\n    print(i)\nprint('python', sys.version_info.major)";
    let lines = printed(session, code).await;
    table.row("code may have several lines", lines == "0\n1\n2\npython 3");
    let errors = python(session, "import sys; sys.stderr.write('oops')").await;
    table.row(
        "standard error is returned",
        errors.outcome.stderr.bytes == b"oops",
    );
    let code = python(session, "raise SystemExit(42)").await;
    let failed = code.status() == ExecutionStatus::Failed;
    table.row(
        "an exit code is returned",
        failed && code.outcome.exit_code == 42,
    );
    let invalid = python(session, "def ~~~").await;
    table.row(
        "a syntax error is a failure",
        invalid.outcome.exit_code != 0,
    );
    python(session, "open('/workspace/flag.txt', 'w').write('yes')").await;
    let flag = printed(session, "print(open('/workspace/flag.txt').read())").await;
    table.row("files last from one execution to the next", flag == "yes");
}

async fn limits(table: &mut Table, sandbox: &Sandbox, config: &SessionConfig) {
    let mut config = config.clone();
    config.limits.memory_bytes = Limit::asked(256 * MIB);
    let agent: AgentId = "limits".parse().expect("id");
    let session = sandbox.create_session(&agent, None, config).await;
    let session = session.expect("a session");
    let held = "b = bytearray(100 << 20); print(len(b))";
    let within = printed(&session, held).await == "104857600";
    let over = python(&session, "b = b'x' * (400 << 20)").await;
    let reason = over.outcome.killed.is_some() || over.outcome.exit_code != 0;
    table.row("memory is limited to what was asked for", within && reason);
    let forks = "
import os, time
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)";
    let forks: u32 = printed(&session, forks).await.parse().unwrap_or(400);
    table.row(
        "there are at most 256 processes",
        (200..=256).contains(&forks),
    );
    session.destroy().await.expect("an end");
}

async fn hardening(
    table: &mut Table,
    sandbox: &Sandbox,
    config: &SessionConfig,
    session: &Session,
) {
    let user = printed(session, "import os; print(os.getuid())").await;
    table.row("programs run as nobody", user == "65534");
    let write = |path: &str| {
        format!(
            "try:\n    open('{path}', 'w').write('x')\n    print('written')\nexcept OSError:\n    print('no')"
        )
    };
    let root = printed(session, &write("/root_test")).await;
    table.row("the root is read-only", root == "no");
    let workspace = printed(session, &write("/workspace/x")).await;
    table.row("the workspace is writable", workspace == "written");
    // An address that nobody has.
    let connect = "
import socket
try:
    socket.create_connection(('192.0.2.1', 80), timeout=2)
    print('connected')
except OSError:
    print('blocked')";
    let network = printed(session, connect).await;
    table.row(
        "there is no network unless it is asked for",
        network == "blocked",
    );
    let mut named = config.clone();
    let rule = Rule::parse("allowed.invalid:443").expect("a rule");
    named.network = NetworkConfig {
        open: false,
        layers: vec![Layer::new(LayerKind::Run).allow([rule])],
    };
    let agent: AgentId = "network".parse().expect("id");
    let other = sandbox.create_session(&agent, None, named).await;
    let other = other.expect("a session");
    let lookup = |name: &str| {
        format!(
            "import socket\ntry:\n    print(len(socket.getaddrinfo('{name}', 443)) > 0)\nexcept OSError:\n    print('unknown')"
        )
    };
    let allowed = printed(&other, &lookup("allowed.invalid")).await;
    let denied = printed(&other, &lookup("denied.invalid")).await;
    table.row(
        "with a network, names are looked up",
        (allowed.as_str(), denied.as_str()) == ("True", "unknown"),
    );
    other.destroy().await.expect("an end");
    let status = printed(session, "print(open('/proc/self/status').read())").await;
    table.row(
        "there are no capabilities",
        status.contains("CapEff:\t0000000000000000"),
    );
}

async fn variables(table: &mut Table, sandbox: &Sandbox, config: &SessionConfig) {
    let with = |name: &str, value: &str| SessionConfig {
        env: vec![(name.into(), value.into())],
        ..config.clone()
    };
    let agent: AgentId = "env".parse().expect("id");
    let session = sandbox
        .create_session(&agent, None, with("MY_APP_KEY", "hello123"))
        .await;
    let session = session.expect("a session");
    let value = printed(&session, "import os; print(os.environ['MY_APP_KEY'])").await;
    table.row("variables are passed on", value == "hello123");
    session.destroy().await.expect("an end");
    let refused = sandbox
        .create_session(&agent, None, with("LD_PRELOAD", "/evil.so"))
        .await;
    let refused = refused.expect_err("it is dangerous").code();
    table.row("`LD_PRELOAD` never arrives", refused == "input.config");
}

async fn commands(table: &mut Table, session: &Session) {
    let run = |words: &[&str]| session.run(words.iter().map(|word| (*word).to_owned()).collect());
    let echo = run(&["echo", "hi"]).await.expect("a report");
    table.row("a command runs", stdout(&echo) == "hi\n");
    let missing = run(&["nonexistent_binary_xyz"]).await;
    let missing = missing.expect_err("there is no such program").code();
    table.row(
        "a missing program is a failure",
        missing == "run.cannot-start",
    );
    let slow = run(&["python3", "-c", "import time; time.sleep(0.2)"])
        .await
        .expect("a report");
    let duration = slow.outcome.duration;
    table.row(
        "the duration is measured",
        duration >= Duration::from_millis(100),
    );
}

async fn checkpoints(table: &mut Table, session: &Session) {
    let name: CheckpointName = "snap1".parse().expect("a name");
    let write = |text: &str| format!("open('/workspace/data.txt', 'w').write('{text}')");
    python(session, &write("original")).await;
    let saved = session.save_state(&name).await.expect("saved");
    let listed = session.checkpoints().expect("a list") == [saved];
    python(session, &write("modified")).await;
    session.restore_state(&name).await.expect("restored");
    let restored = printed(session, "print(open('/workspace/data.txt').read())").await;
    session.delete_checkpoint(&name).await.expect("deleted");
    let left = session.checkpoints().expect("a list").is_empty();
    table.row("a state is saved, listed and deleted", listed && left);
    table.row("a state is restored", restored == "original");
}

async fn async_and_errors(table: &mut Table, sandbox: &Sandbox, session: Session) {
    let waiting = "
import os, time
while not os.path.exists('/workspace/go'):
    time.sleep(0.01)
print(1 + 1)";
    let running = session
        .start(Request::code(Language::Python, waiting))
        .await;
    let running = running.expect("it runs");
    let executing = session.status() == SessionStatus::Executing;
    python(&session, "open('/workspace/go', 'w')").await;
    let report = running.wait().await.expect("a report");
    table.row(
        "calls are asynchronous",
        executing && stdout(&report) == "2\n",
    );
    session.destroy().await.expect("an end");
    let after = session.execute_code(Language::Python, "pass").await;
    let after = after.expect_err("it is destroyed").code();
    table.row(
        "a destroyed session runs nothing",
        after == "session.unknown",
    );
    let nobody = sandbox.open_session(session.agent(), session.id()).await;
    let nobody = nobody.expect_err("it is not there").code();
    table.row(
        "an unknown session is an error",
        nobody == "session.unknown",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_28_behaviours_have_an_answer() {
    let Some(engine) = Engine::find("AGT's behaviours") else {
        return;
    };
    let mut table = Table::default();
    let connected = DockerBackend::connect(engine.options()).await;
    table.row("an engine is found", connected.is_ok());
    let backend = Arc::new(connected.expect("the engine answers"));
    let mut chosen = engine.config("auto");
    // With gVisor the tests' engine has no CPU limit.
    chosen.waive.insert(Control::Cpu);
    let offer = backend.probe(&chosen).await.expect("capabilities");
    table.row("a runtime is chosen", offer.chosen.contains_key("runtime"));
    let config = engine.config("runc");
    let state = tempfile::tempdir().expect("folder");
    let sandbox = Sandbox::builder(backend).state_dir(state.path());
    let sandbox = sandbox.build().expect("a sandbox");
    let session = sessions(&mut table, &sandbox, &config).await;
    executions(&mut table, &session).await;
    limits(&mut table, &sandbox, &config).await;
    hardening(&mut table, &sandbox, &config, &session).await;
    variables(&mut table, &sandbox, &config).await;
    commands(&mut table, &session).await;
    checkpoints(&mut table, &session).await;
    async_and_errors(&mut table, &sandbox, session).await;
    assert_eq!(table.0.len(), 28);
    for (index, behaviour) in table.0.iter().enumerate() {
        let row = format!("\n| {} | {behaviour} | ", index + 1);
        assert!(GUIDE.contains(&row), "the guide lacks {row}");
    }
}
