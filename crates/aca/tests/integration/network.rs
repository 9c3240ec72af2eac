//! Rules that change, and what was decided by them.

use std::sync::Arc;

use brig_audit::{Event, MemoryLog};
use brig_egress::{Layer, Rule};
use brig_sandbox::{Request, Sandbox, SessionConfig};
use serde_json::{Value, json};

use crate::create::{sandbox, session, text, with_host};
use crate::stand_in::{Fault, StandIn};

fn entry(number: usize, host: &str) -> Value {
    json!({
        "timestamp": format!("2026-01-01T00:00:{number:02}Z"),
        "host": host, "method": "GET", "path": "/secret", "scheme": "https",
    })
}

fn recorded(log: &MemoryLog) -> Vec<(bool, String, String)> {
    let records = log.records();
    let egress = records.into_iter().filter_map(|record| match record.event {
        Event::EgressDecided(egress) => Some((egress.allowed, egress.host, egress.code)),
        _ => None,
    });
    egress.collect()
}

#[tokio::test]
async fn decisions_become_records_once() {
    let stand_in = StandIn::start().await;
    let log = Arc::new(MemoryLog::new(1000));
    let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
    let sandbox = builder.build().unwrap();
    let session = session(&sandbox, SessionConfig::default()).await;
    stand_in.state().decisions =
        json!({"allowed": [entry(1, "good.example")], "denied": [entry(2, "bad.example")]});
    let report = session.run(vec!["true".into()]).await.unwrap();
    let hosts: Vec<String> = report
        .attempted
        .egress
        .iter()
        .map(|one| one.host.clone())
        .collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    stand_in.state().decisions = json!({
        "allowed": [entry(1, "good.example")],
        "denied": [entry(3, "worse.example"), entry(2, "bad.example")],
    });
    text(&session, "true").await.unwrap();
    // What is decided between the last execution and the end.
    stand_in.state().decisions["denied"] =
        json!([entry(4, "late.example"), entry(3, "worse.example")]);
    session.destroy().await.unwrap();
    let no_rule = |host: &str| (false, host.to_owned(), "network.no-rule".to_owned());
    assert_eq!(
        recorded(&log),
        [
            (true, "good.example".to_owned(), "network.rule".to_owned()),
            no_rule("bad.example"),
            no_rule("worse.example"),
            no_rule("late.example"),
        ]
    );
    stand_in.check_clean();
}

#[tokio::test]
async fn what_is_decided_after_a_deletion_failed_is_recorded() {
    let stand_in = StandIn::start().await;
    let log = Arc::new(MemoryLog::new(1000));
    let backend = Arc::new(stand_in.hasty_backend());
    let sandbox = Sandbox::builder(backend).recorder(log.clone()).build();
    let sandbox = sandbox.unwrap();
    let session = session(&sandbox, with_host("start.example")).await;
    let running = session.start(Request::command(["sleep", "3600"]));
    let running = running.await.unwrap();
    let runs = "pgrep -x sleep || true";
    while text(&session, runs).await.unwrap().is_empty() {}
    // Rules that are not in force: the sandbox is to be deleted. Nothing is decided when it is asked for the last time.
    stand_in.state().on_read =
        Some(|value| value["egressPolicy"]["defaultAction"] = json!("Allow"));
    stand_in.state().decisions = json!({"allowed": [], "denied": [entry(1, "late.example")]});
    let nothing = json!({"networkEgress": {"allowed": [], "denied": []}});
    stand_in.fail("decisions", Fault::Answer(nothing));
    stand_in.fail("delete", Fault::Status(403, "Forbidden"));
    let agent = "agent".parse().unwrap();
    let add = |layer: &mut Layer| layer.allow.push(Rule::parse("more.example").unwrap());
    let left = sandbox.change_network(&agent, session.id(), add).await;
    assert_eq!(left.unwrap_err().code(), "azure.not-deleted");
    assert_eq!(stand_in.state().sandboxes.len(), 1, "it goes on");
    running.wait().await.unwrap_err();
    let hosts: Vec<String> = recorded(&log)
        .into_iter()
        .map(|(_, host, _)| host)
        .collect();
    assert_eq!(hosts, ["late.example"]);
    // It is not used again, and the session has to delete it.
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn what_may_be_missing_is_recorded() {
    let stand_in = StandIn::start().await;
    let log = Arc::new(MemoryLog::new(1000));
    let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
    let sandbox = builder.build().unwrap();
    let session = session(&sandbox, SessionConfig::default()).await;
    let incomplete = |log: &MemoryLog| {
        let all = recorded(log);
        all.iter()
            .filter(|(_, _, code)| code == "network.incomplete")
            .count()
    };
    let many: Vec<Value> = (0..49)
        .rev()
        .map(|number| entry(number, "many.example"))
        .collect();
    stand_in.state().decisions = json!({"allowed": [], "denied": many});
    text(&session, "true").await.unwrap();
    assert_eq!(incomplete(&log), 0, "control: the list is not full");
    let many: Vec<Value> = (30..80)
        .rev()
        .map(|number| entry(number, "many.example"))
        .collect();
    stand_in.state().decisions["denied"] = json!(many);
    text(&session, "true").await.unwrap();
    assert_eq!(
        incomplete(&log),
        0,
        "control: it goes on from what was seen"
    );
    let many: Vec<Value> = (100..150)
        .rev()
        .map(|number| entry(number, "many.example"))
        .collect();
    stand_in.state().decisions["denied"] = json!(many);
    text(&session, "true").await.unwrap();
    assert_eq!(
        incomplete(&log),
        1,
        "full, and nothing of it was seen before"
    );
    for _ in 0..5 {
        stand_in.fail("decisions", Fault::Status(500, ""));
    }
    let report = session.run(vec!["true".into()]).await.unwrap();
    let codes: Vec<&str> = report
        .attempted
        .egress
        .iter()
        .map(|one| one.code.as_str())
        .collect();
    assert_eq!(codes, ["network.incomplete"], "they could not be read");
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn rules_are_replaced_and_read_back() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, with_host("start.example")).await;
    text(&session, "true").await.unwrap();
    let agent = "agent".parse().unwrap();
    let add = |layer: &mut Layer| layer.allow.push(Rule::parse("added.example").unwrap());
    sandbox
        .change_network(&agent, session.id(), add)
        .await
        .unwrap();
    let hosts = |stand_in: &StandIn| {
        let state = stand_in.state();
        let value = &state.sandboxes.values().next().unwrap().value;
        value["egressPolicy"]["hostRules"].to_string()
    };
    let both = hosts(&stand_in);
    assert!(
        both.contains("added.example") && both.contains("start.example"),
        "{both}"
    );

    // A service that says yes and does something else.
    stand_in.state().on_read =
        Some(|value| value["egressPolicy"]["defaultAction"] = json!("Allow"));
    let add = |layer: &mut Layer| layer.allow.push(Rule::parse("more.example").unwrap());
    let refused = sandbox.change_network(&agent, session.id(), add).await;
    assert_eq!(refused.unwrap_err().code(), "azure.egress-policy");
    stand_in.check_clean();
}

#[tokio::test]
async fn rules_that_mean_something_else_there_are_refused_before_anything_is_sent() {
    let stand_in = StandIn::start().await;
    let sandbox = sandbox(&stand_in);
    let agent = "agent".parse().unwrap();
    for host in ["*.example.org", "example.org:8443", "192.0.2.1"] {
        let refused = sandbox.create_session(&agent, None, with_host(host)).await;
        let error = refused.unwrap_err();
        assert_eq!(error.code(), "input.config", "{error}");
    }
    assert!(stand_in.state().log.is_empty());
    sandbox
        .create_session(&agent, None, with_host("example.org"))
        .await
        .unwrap();
}

#[tokio::test]
async fn equal_decisions_are_each_recorded() {
    let stand_in = StandIn::start().await;
    let log = Arc::new(MemoryLog::new(1000));
    let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
    let sandbox = builder.build().unwrap();
    let session = session(&sandbox, SessionConfig::default()).await;
    let equal = |count: usize| vec![entry(1, "same.example"); count];
    let totals = async |count: usize| {
        stand_in.state().decisions = json!({"allowed": [], "denied": equal(count)});
        let report = session.run(vec!["true".into()]).await.unwrap();
        report.attempted.totals.denied
    };
    assert_eq!(totals(2).await, 2);
    assert_eq!(totals(2).await, 0);
    assert_eq!(totals(5).await, 3);
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

/// Each command of the CLI is a process of its own.
#[tokio::test]
async fn another_process_goes_on_where_the_last_one_was() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let process = || {
        let log = Arc::new(MemoryLog::new(1000));
        let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
        (builder.state_dir(state.path()).build().unwrap(), log)
    };
    let agent = "agent".parse().unwrap();
    let id = "s".parse().unwrap();
    let full = |from: usize, host: &str| -> Value {
        let entries = (from..from + 50).rev().map(|number| entry(number, host));
        entries.collect()
    };
    let (first, log) = process();
    let config = SessionConfig::default();
    let created = first.create_session(&agent, Some("s".parse().unwrap()), config);
    let session = created.await.unwrap();
    stand_in.state().decisions =
        json!({"allowed": full(0, "a.example"), "denied": full(0, "d.example")});
    text(&session, "true").await.unwrap();
    assert!(recorded(&log).len() > 2, "control: they are recorded once");
    session.close().await.unwrap();
    drop((session, first));

    let (second, log) = process();
    let session = second.open_session(&agent, &id).await.unwrap();
    text(&session, "true").await.unwrap();
    assert_eq!(recorded(&log), [], "nothing of it is this execution's");
    stand_in.state().decisions["denied"] = full(1, "d.example");
    text(&session, "true").await.unwrap();
    let no_rule = (false, "d.example".to_owned(), "network.no-rule".to_owned());
    assert_eq!(recorded(&log), [no_rule]);
    session.close().await.unwrap();
    drop((session, second));

    // Nothing is executed any more, so nobody knows whose the last ones are.
    stand_in.state().decisions["denied"] = full(4, "d.example");
    let (third, log) = process();
    third.destroy_session(&agent, &id).await.unwrap();
    let late = |log: &MemoryLog| -> Vec<(Option<String>, String, Option<String>)> {
        let egress = log
            .records()
            .into_iter()
            .filter_map(|record| match record.event {
                Event::EgressDecided(egress) => {
                    Some((record.execution, egress.code, egress.detail))
                }
                _ => None,
            });
        egress.collect()
    };
    let detail = "after the last execution, 3 more were denied".to_owned();
    assert_eq!(
        late(&log),
        [(None, "network.incomplete".to_owned(), Some(detail))]
    );
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (1, 1));
    stand_in.check_clean();
}

#[tokio::test]
async fn a_process_that_only_joined_counts_what_came_late() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let process = || {
        let log = Arc::new(MemoryLog::new(1000));
        let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
        (builder.state_dir(state.path()).build().unwrap(), log)
    };
    let agent = "agent".parse().unwrap();
    let (first, _) = process();
    let id = "s".parse().unwrap();
    let created = first.create_session(&agent, Some(id), SessionConfig::default());
    let session = created.await.unwrap();
    text(&session, "true").await.unwrap();
    session.close().await.unwrap();
    drop((session, first));
    stand_in.state().decisions = json!({"allowed": [entry(1, "late.example")], "denied": []});
    let (second, log) = process();
    let id = "s".parse().unwrap();
    let session = second.open_session(&agent, &id).await.unwrap();
    session.list_files(".").await.unwrap();
    session.destroy().await.unwrap();
    let incomplete = (
        true,
        "(other hosts)".to_owned(),
        "network.incomplete".to_owned(),
    );
    assert_eq!(recorded(&log), [incomplete]);
    stand_in.check_clean();
}
