//! Creation, and what may go wrong with it: sent once, found again, or deleted.

use std::sync::Arc;
use std::time::Duration;

use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::{Error, Limit, Sandbox, Session, SessionConfig};
use serde_json::{Value, json};

use crate::stand_in::{Change, Fault, StandIn};

pub(crate) fn sandbox(stand_in: &StandIn) -> Sandbox {
    Sandbox::builder(Arc::new(stand_in.backend()))
        .build()
        .unwrap()
}

pub(crate) async fn session(sandbox: &Sandbox, config: SessionConfig) -> Session {
    let agent = "agent".parse().unwrap();
    sandbox.create_session(&agent, None, config).await.unwrap()
}

/// Why there is no session.
pub(crate) async fn refused(sandbox: &Sandbox) -> Error {
    let agent = "agent".parse().unwrap();
    let created = sandbox.create_session(&agent, None, SessionConfig::default());
    created.await.unwrap_err()
}

pub(crate) async fn text(session: &Session, script: &str) -> Result<String, Error> {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let outcome = session.run(command).await?.outcome;
    assert!(outcome.success(), "{outcome:?}");
    Ok(String::from_utf8(outcome.stdout.bytes).unwrap())
}

pub(crate) fn with_host(host: &str) -> SessionConfig {
    let mut config = SessionConfig::default();
    let rule = Rule::parse(host).unwrap();
    config.network.layers = vec![Layer::new(LayerKind::Policy).allow([rule])];
    config
}

#[tokio::test]
async fn the_policy_and_the_backstop_are_in_the_request() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, with_host("packages.example.org")).await;
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    let value = stand_in
        .state()
        .sandboxes
        .values()
        .next()
        .unwrap()
        .value
        .clone();
    assert_eq!(
        value["egressPolicy"],
        json!({
            "defaultAction": "Deny",
            "trafficInspection": "Full",
            "hostRules": [{"pattern": "packages.example.org", "action": "Allow"}],
        })
    );
    assert_eq!(value["lifecycle"]["autoDeletePolicy"]["enabled"], true);
    assert_eq!(value["lifecycle"]["autoSuspendPolicy"]["interval"], 300);
    assert_eq!(
        value["resources"],
        json!({"cpu": "250m", "memory": "512Mi"})
    );
    assert_eq!(
        value["sourcesRef"]["diskImage"],
        json!({"name": "python-3.13", "isPublic": true})
    );
    assert_eq!(
        (stand_in.count("create"), stand_in.count("egress policy")),
        (1, 0)
    );
    session.destroy().await.unwrap();
    assert_eq!(stand_in.count("delete"), 1);
    let scopes = stand_in.state().scopes.clone();
    assert_eq!(scopes, ["api://arm/.default", "api://stand-in/.default"]);
    stand_in.check_clean();
}

/// Whatever the service made of the request, nothing runs in it.
#[tokio::test]
async fn what_is_not_as_it_was_sent_is_deleted() {
    let changes: [(Change, &str); 7] = [
        (
            |value| value["egressPolicy"]["defaultAction"] = json!("Allow"),
            "azure.egress-policy",
        ),
        (
            |value| value["egressPolicy"] = Value::Null,
            "azure.egress-policy",
        ),
        (
            |value| value["egressPolicy"]["trafficInspection"] = json!("None"),
            "azure.egress-policy",
        ),
        (
            |value| value["egressPolicy"]["enforcementMode"] = json!("Audit"),
            "azure.egress-policy",
        ),
        (
            |value| value["skipEgressProxy"] = json!(true),
            "azure.egress-policy",
        ),
        (
            |value| value["resources"]["memory"] = json!("4096Mi"),
            "backend.setup",
        ),
        (|value| value["labels"] = json!({}), "backend.setup"),
    ];
    for (change, code) in changes {
        let stand_in = StandIn::start().await;
        stand_in.state().on_create = Some(change);
        let sandbox = sandbox(&stand_in);
        let error = refused(&sandbox).await;
        assert_eq!(error.code(), code, "{error}");
        assert_eq!((stand_in.count("create"), stand_in.count("exec")), (1, 0));
        stand_in.check_clean();
    }
}

#[tokio::test]
async fn a_policy_that_changes_on_the_way_back_is_noticed() {
    let stand_in = StandIn::start().await;
    stand_in.state().on_read =
        Some(|value| value["egressPolicy"]["validationWarnings"] = json!([{"code": "W1"}]));
    let sandbox = sandbox(&stand_in);
    let error = refused(&sandbox).await;
    assert_eq!(error.code(), "azure.egress-policy", "{error}");
    stand_in.check_clean();
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_found_again() {
    for fault in [Fault::Lost, Fault::DoneBut(500), Fault::DoneBut(504)] {
        let stand_in = StandIn::start().await;
        stand_in.fail("create", fault.clone());
        let sandbox = sandbox(&stand_in);
        let session = session(&sandbox, SessionConfig::default()).await;
        assert_eq!(
            text(&session, "echo one").await.unwrap(),
            "one\n",
            "{fault:?}"
        );
        assert_eq!(stand_in.count("create"), 1, "{fault:?}");
        session.destroy().await.unwrap();
        stand_in.check_clean();
    }
}

#[tokio::test]
async fn a_creation_is_never_sent_twice() {
    for (fault, code) in [
        (Fault::Status(403, "Forbidden"), "azure.role"),
        (Fault::Status(404, "SandboxGroupNotFound"), "azure.group"),
        (Fault::Status(429, "TooManyRequests"), "azure.failed"),
        (Fault::Status(400, "InvalidResourceTier"), "azure.failed"),
        (Fault::Status(500, "DependencyError"), "azure.not-deleted"),
        (Fault::Status(503, ""), "azure.not-deleted"),
        (
            Fault::Answer(json!({"success": false, "error": "no"})),
            "azure.failed",
        ),
    ] {
        let stand_in = StandIn::start().await;
        stand_in.fail("create", fault.clone());
        let sandbox = sandbox(&stand_in);
        let error = refused(&sandbox).await;
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        assert_eq!((stand_in.count("create"), stand_in.count("exec")), (1, 0));
        stand_in.check_clean();
    }
}

#[tokio::test]
async fn a_creation_without_an_answer_ends_and_is_looked_for() {
    let stand_in = StandIn::start().await;
    stand_in.fail("create", Fault::Hang);
    let backend = stand_in.impatient_backend();
    let sandbox = Sandbox::builder(Arc::new(backend)).build().unwrap();
    let error = refused(&sandbox).await;
    assert_eq!(error.code(), "azure.not-deleted", "{error}");
    assert!(error.to_string().contains("brig-request="), "{error}");
    assert_eq!(stand_in.count("create"), 1);
    assert!(stand_in.count("list") > 1, "it was looked for");
    stand_in.check_clean();
}

#[tokio::test]
async fn a_sandbox_that_takes_its_time_is_waited_for() {
    let stand_in = StandIn::start().await;
    stand_in.state().on_create = Some(|value| value["state"] = json!("Creating"));
    stand_in.fail("get", Fault::Status(404, "SandboxNotFound"));
    let sandbox = sandbox(&stand_in);
    let becomes = async {
        while stand_in.count("get") < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for entry in stand_in.state().sandboxes.values_mut() {
            entry.value["state"] = json!("Running");
        }
    };
    let (session, ()) = tokio::join!(session(&sandbox, SessionConfig::default()), becomes);
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    session.destroy().await.unwrap();

    stand_in.state().on_create = Some(|value| value["state"] = json!("Failed"));
    let error = refused(&sandbox).await;
    assert_eq!(error.code(), "backend.setup", "{error}");
    stand_in.check_clean();
}

#[tokio::test]
async fn a_deletion_is_repeated_and_confirmed() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    text(&session, "echo one").await.unwrap();
    for fault in [Fault::Status(429, ""), Fault::Status(503, ""), Fault::Lost] {
        stand_in.fail("delete", fault);
    }
    session.destroy().await.unwrap();
    assert_eq!(stand_in.count("delete"), 4);
    stand_in.check_clean();
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_nothing() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let started = async {
        while stand_in.count("create") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = session(&sandbox, SessionConfig::default()) => panic!("control: it was not that fast"),
        () = started => {}
    }
    drop(sandbox);
    let begun = std::time::Instant::now();
    while stand_in.count("delete") == 0 || !stand_in.state().sandboxes.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stand_in.check_clean();
}

#[tokio::test]
async fn limits_become_a_size_and_what_no_size_holds_is_refused() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let mut config = SessionConfig::default();
    config.limits.memory_bytes = Limit::asked(2 << 30);
    let large = session(&sandbox, config.clone()).await;
    text(&large, "true").await.unwrap();
    let value = stand_in
        .state()
        .sandboxes
        .values()
        .next()
        .unwrap()
        .value
        .clone();
    assert_eq!(
        value["resources"],
        json!({"cpu": "1000m", "memory": "2048Mi"})
    );
    large.destroy().await.unwrap();
    let agent = "agent".parse().unwrap();
    for (bytes, code) in [
        (64 << 20, "policy.unenforceable"),
        (16 << 30, "input.config"),
    ] {
        config.limits.memory_bytes = Limit::asked(bytes);
        let refused = sandbox.create_session(&agent, None, config.clone()).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    stand_in.check_clean();
}
