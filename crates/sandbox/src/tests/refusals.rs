//! What is not decided on, not recorded or not allowed does not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brig_audit::{Event as Fact, MemoryLog, Record, RecordError, Recorder};
use brig_policy::{Action, Decider, Decision, Request as Question};

use super::fake::{Fake, agent, words};
use crate::{Error, Language, Request, Sandbox, SessionConfig};

/// Denies whatever speaks of a secret.
#[derive(Debug)]
struct NoSecrets;

impl Decider for NoSecrets {
    fn decide(&self, request: &Question<'_>) -> Decision {
        let code = request
            .code
            .map(String::from_utf8_lossy)
            .unwrap_or_default();
        let command = request.command.unwrap_or_default().join(" ");
        assert_eq!(request.action == Action::Execute, request.code.is_some());
        let allowed = !code.contains("secret") && !command.contains("secret");
        let reason = "secrets are secret";
        match allowed {
            true => Decision::allow("policy.default", reason),
            false => Decision::deny("policy.rule", reason).by_rule("no-secrets"),
        }
    }
}

/// A log with room for a few records.
#[derive(Debug)]
struct Full(AtomicUsize);

impl Recorder for Full {
    fn append(&self, _record: Record) -> Result<(), RecordError> {
        let left = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map(|_| ())
            .map_err(|_| RecordError::new("the disk is full"))
    }
}

#[tokio::test]
async fn a_denial_is_recorded_and_nothing_runs() {
    let (fake, log) = (Arc::new(Fake::default()), Arc::new(MemoryLog::default()));
    let sandbox = Sandbox::builder(fake.clone())
        .decider(Arc::new(NoSecrets))
        .recorder(log.clone())
        .build()
        .expect("sandbox");
    let request = Request::code(Language::Python, "print(secret)");
    let denied = sandbox
        .run_once(&agent(), SessionConfig::default(), request)
        .await;
    let Err(error @ Error::Denied(_)) = denied else {
        panic!("{denied:?}")
    };
    assert_eq!(error.to_string(), "denied by policy: secrets are secret");
    let Error::Denied(denial) = error else {
        unreachable!()
    };
    assert_eq!(denial.rule(), Some("no-secrets"));
    assert_eq!(denial.code(), "policy.rule");
    assert_eq!(denial.to_json()["decision"]["rule"], "no-secrets");
    assert_eq!(denial.to_json()["status"], "failed");
    assert_eq!(
        fake.started.load(Ordering::SeqCst),
        0,
        "not even an instance"
    );

    let session = sandbox
        .create_session(&agent(), None, SessionConfig::default())
        .await;
    let session = session.expect("session");
    assert!(matches!(
        session.run(words("echo secret")).await,
        Err(Error::Denied(_))
    ));
    assert_eq!(fake.ran.load(Ordering::SeqCst), 0);
    session
        .run(words("echo hello"))
        .await
        .expect("control: what is allowed runs");
    let denials = log.records().iter().filter(|r| is_denial(&r.event)).count();
    assert_eq!(denials, 2);
}

fn is_denial(fact: &Fact) -> bool {
    matches!(fact, Fact::Decided { allowed: false, .. })
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_run() {
    for room in 0..3 {
        let fake = Arc::new(Fake::default());
        let log = Arc::new(Full(AtomicUsize::new(room)));
        let sandbox = Sandbox::builder(fake.clone())
            .recorder(log)
            .build()
            .expect("sandbox");
        let request = Request::command(["echo", "hello"]);
        let result = sandbox
            .run_once(&agent(), SessionConfig::default(), request)
            .await;
        assert!(
            matches!(result, Err(Error::Record(_))),
            "{room}: {result:?}"
        );
        assert_eq!(
            fake.ran.load(Ordering::SeqCst),
            0,
            "room for {room} records"
        );
        assert_eq!(
            fake.alive.load(Ordering::SeqCst),
            0,
            "room for {room} records"
        );
    }
    let fake = Arc::new(Fake::default());
    let log = Arc::new(Full(AtomicUsize::new(6)));
    let sandbox = Sandbox::builder(fake.clone())
        .recorder(log)
        .build()
        .expect("sandbox");
    let request = Request::command(["echo", "hello"]);
    let report = sandbox
        .run_once(&agent(), SessionConfig::default(), request)
        .await;
    assert!(report.is_ok(), "control: with room for all of them it runs");
}

#[tokio::test]
async fn bad_requests_are_refused_before_anything_starts() {
    let fake = Arc::new(Fake::default());
    let sandbox = Sandbox::builder(fake.clone()).build().expect("sandbox");
    let mut bad_env = Request::command(["echo", "x"]);
    bad_env.env.push(("LD_PRELOAD".into(), "x".into()));
    let mut bad_time = Request::command(["echo", "x"]);
    bad_time.timeout = Some(std::time::Duration::ZERO);
    let mut bad_cwd = Request::command(["echo", "x"]);
    bad_cwd.cwd = Some("a\0b".into());
    let none: [&str; 0] = [];
    for request in [
        bad_env,
        bad_time,
        bad_cwd,
        Request::command(none),
        Request::command([""]),
        Request::command(["echo", "a\0b"]),
    ] {
        let shown = format!("{request:?}");
        let result = sandbox
            .run_once(&agent(), SessionConfig::default(), request)
            .await;
        assert!(
            matches!(result, Err(Error::InvalidConfig { .. })),
            "{shown}: {result:?}"
        );
    }
    let mut config = SessionConfig::default();
    config.env.push(("NODE_OPTIONS".into(), "x".into()));
    assert!(
        sandbox
            .create_session(&agent(), None, config)
            .await
            .is_err()
    );
    assert_eq!(fake.started.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_change_of_the_network_that_cannot_be_recorded_is_not_made() {
    let state = tempfile::tempdir().expect("folder");
    let log = Arc::new(Full(AtomicUsize::new(100)));
    let builder = Sandbox::builder(Arc::new(Fake::default())).recorder(log.clone());
    let sandbox = builder.state_dir(state.path()).build().expect("sandbox");
    let rule = brig_egress::Rule::parse("a.org").expect("rule");
    let owner = agent();
    let session = sandbox.create_session(&owner, None, SessionConfig::default());
    let id = session.await.expect("session").id().clone();
    log.0.store(0, Ordering::SeqCst);
    let allow = |layer: &mut brig_egress::Layer| layer.allow.push(rule.clone());
    let refused = sandbox.change_network(&owner, &id, allow).await;
    assert!(matches!(refused, Err(Error::Record(_))), "{refused:?}");
    let kept = sandbox.change_network(&owner, &id, |_| {}).await;
    assert!(kept.expect("layer").allow.is_empty());
    log.0.store(1, Ordering::SeqCst);
    let changed = sandbox.change_network(&owner, &id, allow).await;
    assert_eq!(changed.expect("layer").allow, [rule]);
}

#[tokio::test]
async fn directories_kept_out_of_reach_are_not_mounted() {
    let outer = tempfile::tempdir().expect("directory");
    let (kept, other) = (outer.path().join("kept"), outer.path().join("other"));
    for directory in [&kept, &other] {
        std::fs::create_dir(directory).expect("directory");
    }
    let builder = Sandbox::builder(Arc::new(Fake::default()));
    let sandbox = builder.keep_out_of_reach(&kept).build().expect("sandbox");
    let run = async |source: &std::path::Path| {
        let config = SessionConfig {
            workspace: Some(source.to_owned()),
            ..SessionConfig::default()
        };
        let request = Request::command(["write", "a", "1"]);
        sandbox.run_once(&agent(), config, request).await
    };
    for source in [&kept, outer.path()] {
        let error = run(source).await.expect_err("out of reach");
        assert_eq!(error.code(), "input.mount", "{error}");
    }
    // Control: beside it.
    run(&other).await.expect("allowed");
}
