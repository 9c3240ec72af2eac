//! What needs an approval waits for it, and everything else is a denial.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use brig_audit::{Event as Fact, MemoryLog};
use brig_policy::{Compat, Document, PolicySet};

use super::fake::{Fake, agent, words};
use crate::approvals::{ApprovalAnswer, ApprovalRequest, Approver};
use crate::{Denial, Error, ExecutionStatus, Limit, Request, Sandbox, Session, SessionConfig};

/// Approves when it is told to.
#[derive(Debug, Default)]
struct Operator {
    asked: AtomicBool,
    may: AtomicBool,
    answers: bool,
}

#[async_trait]
impl Approver for Operator {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        assert_eq!(request.subject.text, "echo mail");
        assert_eq!(request.subject.digest.len(), "sha256:".len() + 64);
        self.asked.store(true, Ordering::SeqCst);
        while !self.may.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match self.answers {
            true => ApprovalAnswer::approve("alice"),
            false => ApprovalAnswer::deny("alice").because("not now"),
        }
    }
}

impl Operator {
    fn who(answers: bool) -> Arc<Self> {
        Arc::new(Self {
            answers,
            ..Self::default()
        })
    }

    async fn is_asked(&self) {
        while !self.asked.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct World {
    fake: Arc<Fake>,
    log: Arc<MemoryLog>,
    session: Arc<Session>,
}

async fn world(approver: Option<Arc<Operator>>, seconds: u64) -> World {
    let text = format!(
        "defaults: {{action: allow, approval_timeout_seconds: {seconds}}}\nrules:\n  - {{name: ask, \
         condition: {{field: command, operator: contains, value: mail}}, action: require_approval}}\n"
    );
    let document = Document::load("p.yaml", text, Compat::Strict).expect("valid");
    let policies = Arc::new(PolicySet::new(vec![document.document]));
    let (fake, log) = (Arc::new(Fake::default()), Arc::new(MemoryLog::default()));
    let mut builder = Sandbox::builder(fake.clone()).recorder(log.clone());
    if let Some(approver) = approver {
        builder = builder.approver(approver);
    }
    let sandbox = builder.build().expect("sandbox");
    let mut config = SessionConfig::default().under(policies).expect("valid");
    config.limits.timeout = Limit::default_of(Duration::from_secs(1));
    let session = sandbox.create_session(&agent(), None, config).await;
    World {
        fake,
        log,
        session: Arc::new(session.expect("session")),
    }
}

impl World {
    async fn denied(&self) -> Box<Denial> {
        match self.session.run(words("echo mail")).await {
            Err(Error::Denied(denial)) => denial,
            other => panic!("{other:?}"),
        }
    }

    fn ran(&self) -> usize {
        self.fake.ran.load(Ordering::SeqCst)
    }

    /// What is recorded about approvals and decisions.
    fn told(&self) -> Vec<String> {
        let told = self.log.records().into_iter().filter_map(|record| {
            Some(match record.event {
                Fact::ApprovalRequested(asked) => asked.kind,
                Fact::ApprovalAnswered(approval) => approval.outcome.name().into(),
                Fact::Decided { code, .. } => code,
                Fact::ExecutionStarted { .. } => "started".into(),
                Fact::Receipt(receipt) => receipt
                    .approval
                    .map_or_else(String::new, |approval| format!("{:?}", approval.by)),
                _ => return None,
            })
        });
        told.collect()
    }
}

#[tokio::test]
async fn nothing_starts_before_the_approval_and_the_wait_costs_no_time() {
    let operator = Operator::who(true);
    let world = world(Some(operator.clone()), 60).await;
    let session = world.session.clone();
    let run = tokio::spawn(async move { session.run(words("echo mail")).await });
    operator.is_asked().await;
    // Longer than the execution may take.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.ran(), 0);
    operator.may.store(true, Ordering::SeqCst);
    let report = run.await.expect("no panic").expect("approved");
    assert!(report.outcome.success(), "{report:?}");
    let approval = report.approval.as_ref().expect("an approval");
    assert_eq!(approval.by.as_deref(), Some("alice"));
    assert!(approval.milliseconds >= 1000);
    assert_eq!(
        report.to_json()["decision"]["approval"]["outcome"],
        "approved"
    );
    let alice = r#"Some("alice")"#;
    assert_eq!(
        world.told(),
        ["command", "approved", "policy.approved", "started", alice]
    );
    // Used once: the next one is asked again.
    operator.asked.store(false, Ordering::SeqCst);
    world
        .session
        .run(words("echo mail"))
        .await
        .expect("approved");
    assert!(operator.asked.load(Ordering::SeqCst));
    assert_eq!(world.ran(), 2);
}

#[tokio::test]
async fn a_denied_an_unanswered_and_an_unattended_request_are_denials() {
    let operator = Operator::who(false);
    operator.may.store(true, Ordering::SeqCst);
    let no = world(Some(operator), 60).await;
    let denial = no.denied().await;
    assert_eq!(denial.code(), "policy.approval");
    assert!(
        denial.reason().ends_with("(alice denied it: not now)"),
        "{}",
        denial.reason()
    );

    let silent = world(Some(Operator::who(true)), 1).await;
    let denial = silent.denied().await;
    assert!(
        denial.reason().contains("it was not approved within 1 s"),
        "{}",
        denial.reason()
    );
    assert!(denial.hint().contains("brig approvals"));

    let nobody = world(None, 60).await;
    let denial = nobody.denied().await;
    assert!(
        denial.reason().contains("there is no approver"),
        "{}",
        denial.reason()
    );
    assert!(denial.hint().contains("approver"));

    for (world, outcome) in [(&no, "denied"), (&silent, "timed-out")] {
        let told = world.told();
        assert_eq!(told[..3], ["command", outcome, "policy.approval"]);
        assert_eq!(world.ran(), 0);
    }
    assert_eq!(nobody.told()[0], "policy.approval");
    nobody
        .session
        .run(words("echo hello"))
        .await
        .expect("control");
}

#[tokio::test]
async fn a_cancelled_execution_cancels_its_request() {
    let operator = Operator::who(true);
    let world = world(Some(operator.clone()), 60).await;
    let session = world.session.clone();
    let run = tokio::spawn(async move { session.run(words("echo mail")).await });
    operator.is_asked().await;
    let id = world.session.executions().pop().expect("an execution").id;
    assert!(world.session.cancel(&id));
    let ended = run.await.expect("no panic");
    assert!(matches!(ended, Err(Error::Denied(_))), "{ended:?}");
    assert_eq!(
        world.told()[..3],
        ["command", "cancelled", "policy.approval"]
    );

    // The caller stops waiting.
    operator.asked.store(false, Ordering::SeqCst);
    let waiting = world.session.start(Request::command(["echo", "mail"]));
    tokio::select! {
        ended = waiting => panic!("it waits for nobody: {:?}", ended.map(drop)),
        () = operator.is_asked() => {}
    }
    let told = world.told();
    let rest = &told[4..];
    assert!(
        rest.contains(&"cancelled".into()) && rest.contains(&"policy.approval".into()),
        "{told:?}"
    );
    assert_eq!(world.ran(), 0);
    let running = |info: &crate::ExecutionInfo| info.status == ExecutionStatus::Running;
    assert!(!world.session.executions().iter().any(running));
}

/// By who has no handle yet, because the start waits for the approval.
#[tokio::test]
async fn a_request_that_is_no_longer_wanted_is_not_approved_later() {
    let operator = Operator::who(true);
    let world = world(Some(operator.clone()), 60).await;
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    let mut request = Request::command(["echo", "mail"]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.trace = crate::TraceParent::parse(trace);
    request.cancelled = Some(Box::pin(async move {
        let _ = cancelled.await;
    }));
    let session = world.session.clone();
    let start = tokio::spawn(async move { session.start(request).await.map(drop) });
    operator.is_asked().await;
    assert_eq!(world.ran(), 0);
    cancel.send(()).expect("it waits");
    let ended = start.await.expect("no panic");
    operator.may.store(true, Ordering::SeqCst);
    assert!(matches!(ended, Err(Error::Denied(_))), "{ended:?}");
    assert_eq!(
        world.told()[..3],
        ["command", "cancelled", "policy.approval"]
    );
    assert_eq!(world.ran(), 0);
    let traces = world
        .log
        .records()
        .into_iter()
        .filter_map(|record| match record.event {
            Fact::Receipt(receipt) => receipt.trace,
            _ => None,
        });
    assert_eq!(traces.collect::<Vec<_>>(), [trace]);
}

#[tokio::test]
async fn destroying_a_session_ends_the_wait() {
    let operator = Operator::who(true);
    let world = world(Some(operator.clone()), 60).await;
    let session = world.session.clone();
    let run = tokio::spawn(async move { session.run(words("echo mail")).await });
    operator.is_asked().await;
    world.session.destroy().await.expect("destroyed");
    assert!(run.await.expect("no panic").is_err());
    assert_eq!(world.ran(), 0);
}
