use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use brig_audit::{Record, RecordError, Recorder};
use brig_policy::{AllowAll, Compat, Extra};
use brig_reason::ReasonCode;
use brig_tools::{Arguments, FunctionTool};
use serde_json::json;

use super::*;
use crate::approvals::{ApprovalAnswer, ApprovalRequest, Approver};
use crate::shared::SessionKey;
use crate::{Attempts, ExecutionId, SessionId};

/// Keeps as many records as it is told to.
#[derive(Debug, Default)]
struct Keeps(AtomicUsize);

impl Recorder for Keeps {
    fn append(&self, _: Record) -> std::result::Result<(), RecordError> {
        let left = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        left.map(drop).map_err(|_| RecordError::new("full"))
    }
}

fn registry(schema: Value) -> ToolRegistry {
    let mut registry = ToolRegistry::default();
    for name in ["fetch", "search"] {
        let mut spec = ToolSpec::new(ToolName::new(name).expect("a name"), "A tool.");
        spec.input_schema = schema.clone();
        let tool = FunctionTool::new(spec, |arguments| async move { Ok(json!(arguments)) });
        registry.add(tool).expect("a free name");
    }
    registry
}

fn policies(texts: &[&str]) -> PolicySet {
    let load = |text: &&str| Document::load("p.yaml", text, Compat::Strict);
    let documents = texts.iter().map(|text| load(text).expect("valid").document);
    PolicySet::new(documents.collect())
}

fn names(tools: &ToolSet) -> Vec<&str> {
    tools.specs().map(|spec| spec.name.as_str()).collect()
}

#[test]
fn every_policy_must_list_a_tool() {
    let open = registry(json!({ "type": "object" }));
    let of = |texts: &[&str]| ToolSet::of(&open, Some(&policies(texts)));
    let both = "tool_allowlist: [fetch, search]\n";
    let one = "tool_allowlist: [search]\ndefaults: {max_tool_calls: 2}\n";
    assert_eq!(names(&of(&[both]).expect("valid")), ["fetch", "search"]);
    let strict = of(&[both, one]).expect("valid");
    assert_eq!((names(&strict), strict.max_calls), (vec!["search"], 2));
    assert!(of(&[both, "name: silent\n"]).expect("valid").is_empty());
    assert!(of(&[]).expect("valid").is_empty());
    assert!(ToolSet::of(&open, None).expect("valid").is_empty());
    let error = of(&["tool_allowlist: [serach]\n"]).expect_err("a typo");
    assert!(
        error.to_string().contains("did you mean `search`?"),
        "{error}"
    );
}

#[test]
fn a_schema_that_is_none_is_refused() {
    let broken = registry(json!({ "type": "nothing" }));
    let listed = policies(&["tool_allowlist: [fetch]\n"]);
    let error = ToolSet::of(&broken, Some(&listed)).expect_err("broken");
    assert!(
        error.to_string().contains("arguments of `fetch`"),
        "{error}"
    );
    let listed = policies(&["name: silent\n"]);
    assert!(ToolSet::of(&broken, Some(&listed)).is_ok(), "not listed");
}

fn gate(records: usize) -> ToolGate {
    gate_of(&registry(json!({ "type": "object" })), records)
}

fn gate_of(registry: &ToolRegistry, records: usize) -> ToolGate {
    gate_with(registry, Arc::new(Keeps(AtomicUsize::new(records))))
}

fn gate_with(registry: &ToolRegistry, recorder: Arc<dyn Recorder>) -> ToolGate {
    let policies = Arc::new(policies(&[
        "defaults: {action: allow}\ntool_allowlist: [fetch]\n",
    ]));
    let tools = ToolSet::of(registry, Some(&policies)).expect("valid");
    let agent: crate::AgentId = "a".parse().expect("a name");
    let session = SessionKey::new(&agent, &SessionId::random());
    let execution = ExecutionId::random();
    let attempts = Attempts::new(session.clone(), execution.clone(), Vec::new(), recorder);
    let caller = Caller {
        agent,
        facts: Extra::default(),
        decider: Arc::new(AllowAll),
        policies: Some(policies),
        session,
        execution,
        approver: None,
    };
    ToolGate::new(tools, caller, Arc::new(attempts))
}

#[tokio::test]
async fn what_is_not_recorded_is_not_answered() {
    let full = gate(0);
    for name in ["fetch", "unknown"] {
        let error = full
            .call(full.turn().await.expect("open"), name, Default::default())
            .await
            .expect_err(name);
        assert_eq!(error.code, ReasonCode::ToolUnavailable);
    }
    let one = gate(1);
    let answer = one
        .call(one.turn().await.expect("open"), "fetch", Default::default())
        .await;
    assert_eq!(answer.expect("the control"), b"{}");
}

#[tokio::test]
async fn nothing_is_called_after_the_end() {
    let gate = gate(10);
    let turn = gate.turn().await.expect("open");
    gate.call(turn, "fetch", Default::default())
        .await
        .expect("control");
    let late = gate.turn().await.expect("open");
    gate.close();
    let error = gate.call(late, "fetch", Default::default()).await;
    assert_eq!(error.expect_err("closed").code, ReasonCode::ToolCancelled);
    assert_eq!(
        gate.turn().await.expect_err("closed").code,
        ReasonCode::ToolCancelled
    );
}

fn asking_gate(
    policy: &str,
    log: &Arc<brig_audit::MemoryLog>,
    approver: impl Approver + 'static,
) -> ToolGate {
    let policies = Arc::new(policies(&[policy]));
    let mut open = ToolRegistry::default();
    let mut spec = ToolSpec::new(ToolName::new("fetch").expect("a name"), "A tool.");
    spec.timeout = Some(Duration::from_secs(2));
    let tool = FunctionTool::new(spec, |arguments| async move { Ok(json!(arguments)) });
    open.add(tool).expect("a free name");
    let tools = ToolSet::of(&open, Some(&policies)).expect("valid");
    let agent: crate::AgentId = "a".parse().expect("a name");
    let session = SessionKey::new(&agent, &SessionId::random());
    let execution = ExecutionId::random();
    let secrets = vec!["hunter\"22".to_owned()];
    let attempts = Attempts::new(session.clone(), execution.clone(), secrets, log.clone());
    let caller = Caller {
        agent,
        facts: Extra::default(),
        decider: Arc::new(AllowAll),
        policies: Some(policies),
        session,
        execution,
        approver: Some(Arc::new(approver)),
    };
    ToolGate::new(tools, caller, Arc::new(attempts))
}

const ASKS: &str = "defaults: {action: require_approval}\ntool_allowlist: [fetch]\n";

fn calls(log: &brig_audit::MemoryLog) -> Vec<brig_audit::Tool> {
    let called = log
        .records()
        .into_iter()
        .filter_map(|record| match record.event {
            brig_audit::Event::ToolCalled(tool) => Some(tool),
            _ => None,
        });
    called.collect()
}

/// Approves after a while.
#[derive(Debug)]
struct Late(Duration);

#[async_trait::async_trait]
impl Approver for Late {
    async fn ask(&self, _: &ApprovalRequest) -> ApprovalAnswer {
        tokio::time::sleep(self.0).await;
        ApprovalAnswer::approve("alice")
    }
}

#[tokio::test]
async fn the_time_of_a_call_begins_after_its_approval() {
    let log = Arc::new(brig_audit::MemoryLog::default());
    let gate = asking_gate(ASKS, &log, Late(Duration::from_secs(3)));
    let turn = gate.turn().await.expect("open");
    let answer = gate.call(turn, "fetch", Arguments::default()).await;
    assert_eq!(answer.expect("approved"), b"{}");
    let [call] = &calls(&log)[..] else {
        panic!("one record for one call")
    };
    assert!(call.allowed && call.success == Some(true));
    assert!(call.milliseconds.expect("it was called") < 2500, "{call:?}");
    let approval = call.approval.as_ref().expect("an approval");
    assert!(approval.milliseconds >= 3000);
    assert_eq!(call.code, "policy.approved");
}

#[tokio::test]
async fn a_call_that_waits_ends_with_its_execution() {
    let log = Arc::new(brig_audit::MemoryLog::default());
    let gate = asking_gate(ASKS, &log, Late(Duration::from_secs(600)));
    let call = async {
        let turn = gate.turn().await.expect("open");
        gate.call(turn, "fetch", Arguments::default()).await
    };
    let close = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        gate.close();
    };
    let (answer, ()) = tokio::join!(call, close);
    assert_eq!(answer.expect_err("ended").code, ReasonCode::ToolCancelled);
    let [call] = &calls(&log)[..] else {
        panic!("one record for one call")
    };
    assert!(!call.allowed && call.code == "tool.cancelled", "{call:?}");
}

/// Says that it has a record, and keeps it when it is told to.
#[derive(Debug)]
struct Held {
    has: Sender<()>,
    go: Mutex<Receiver<()>>,
    kept: Arc<AtomicUsize>,
}

impl Recorder for Held {
    fn append(&self, _: Record) -> std::result::Result<(), RecordError> {
        let failed = |_| RecordError::new("the test has ended");
        self.has
            .send(())
            .map_err(|_| RecordError::new("the test has ended"))?;
        self.go.lock().expect("lock").recv().map_err(failed)?;
        self.kept.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_is_on_record_before_the_gate_is_closed() {
    let (called, mut is_called) = tokio::sync::mpsc::unbounded_channel();
    let mut registry = ToolRegistry::default();
    let spec = ToolSpec::new(ToolName::new("fetch").expect("a name"), "A tool.");
    let hangs = FunctionTool::new(spec, move |_| {
        let called = called.clone();
        async move {
            called.send(()).expect("the test waits");
            std::future::pending().await
        }
    });
    registry.add(hangs).expect("a free name");
    let ((has, is_held), (go, held)) = (channel(), channel());
    let kept = Arc::new(AtomicUsize::new(0));
    let recorder = Held {
        has,
        go: Mutex::new(held),
        kept: kept.clone(),
    };
    let gate = Arc::new(gate_with(&registry, Arc::new(recorder)));
    let call = tokio::spawn({
        let gate = gate.clone();
        async move {
            let turn = gate.turn().await.expect("open");
            gate.call(turn, "fetch", Arguments::default()).await
        }
    });
    is_called.recv().await.expect("called");
    // Who called is gone. The call is dropped on another thread, and is being recorded there.
    call.abort();
    let held = tokio::task::spawn_blocking(move || is_held.recv());
    held.await.expect("joined").expect("a record");
    let close = tokio::task::spawn_blocking(move || {
        gate.close();
        kept.load(Ordering::SeqCst)
    });
    // Time for a gate that does not wait.
    tokio::time::sleep(Duration::from_millis(100)).await;
    go.send(()).expect("the recorder waits");
    assert_eq!(close.await.expect("closed"), 1);
}

#[tokio::test]
async fn arguments_are_recorded_if_the_policy_says_so_and_without_secrets() {
    let arguments = || {
        let mut arguments = Arguments::new();
        arguments.insert("token".into(), json!(["x hunter\"22 y"]));
        arguments.insert("long".into(), json!("é".repeat(10_000)));
        arguments
    };
    let of = |policy: String| async move {
        let log = Arc::new(brig_audit::MemoryLog::default());
        let gate = asking_gate(&policy, &log, Late(Duration::ZERO));
        let turn = gate.turn().await.expect("open");
        gate.call(turn, "fetch", arguments()).await.expect("called");
        calls(&log).pop().expect("a call").arguments
    };
    assert_eq!(of(ASKS.into()).await, None);
    let recorded = of(format!("{ASKS}record_tool_arguments: true\n")).await;
    let recorded = recorded.expect("recorded");
    assert!(
        recorded.contains("éé") && recorded.len() < 10_000,
        "{recorded}"
    );
    assert!(!recorded.contains("hunter"), "{recorded}");
}

#[tokio::test]
async fn the_message_of_a_failed_tool_names_no_path_of_the_host() {
    let mut open = ToolRegistry::default();
    let spec = ToolSpec::new(ToolName::new("fetch").expect("a name"), "A tool.");
    let failed = |_| async move {
        let said = "no such file: /etc/brig/token, not /etc/hosts".to_owned();
        Err(brig_tools::ToolError::Failed(said))
    };
    open.add(FunctionTool::new(spec, failed)).expect("the only");
    let gate = gate_of(&open, 10);
    let mut arguments = Arguments::new();
    arguments.insert("file".into(), json!("/etc/hosts"));
    let turn = gate.turn().await.expect("open");
    let error = gate.call(turn, "fetch", arguments).await;
    let message = error.expect_err("it failed").message;
    assert!(
        message.ends_with("no such file: [path], not /etc/hosts"),
        "{message}"
    );
}
