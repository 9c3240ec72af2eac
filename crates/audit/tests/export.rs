//! The log in the words of other systems.

mod common;

use std::fs;

use brig_audit::agt::{Entry, Value as Agt, chain_of};
use brig_audit::export::{Format, export};
use brig_audit::receipt::{Omitted, Output, Usage, digest};
use brig_audit::{Egress, Event, Log, Options, Receipt, Record, Recorder, Verdict};
use common::*;
use serde_json::Value;

fn egress(host: &str, allowed: bool) -> Egress {
    Egress {
        allowed,
        code: "egress.host".into(),
        rule: Some("=evil()".into()),
        layer: None,
        carried: None,
        protocol: "https".into(),
        host: host.into(),
        port: 443,
    }
}

fn receipt(step: u64, decision: Verdict) -> Record {
    Record {
        event: Event::Receipt(Box::new(Receipt {
            step,
            backend: "native".into(),
            policy: None,
            rule: None,
            decision,
            code: "policy.none".into(),
            reason: "no policy is loaded".into(),
            action: "execute".into(),
            code_digest: digest(b"print(1)"),
            started: record(0).at,
            duration_us: 1_500_000 + step,
            exit_code: Some(0),
            signal: None,
            kill_reason: None,
            usage: Usage::default(),
            stdout: Output::of("h\u{e9}llo \u{1f600}\x1b[0m\n".as_bytes(), 17, &[]),
            stderr: Output::default(),
            egress: vec![egress("example.org", false)],
            commands: Vec::new(),
            tools: Vec::new(),
            omitted: Omitted::default(),
            waived: Vec::new(),
        })),
        ..record(step)
    }
}

fn exported(format: Format) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("folder");
    let log = filled(dir.path(), small_segments(), 3);
    for (step, decision) in (0..).zip(Verdict::ALL) {
        log.append(receipt(step, decision)).expect("append");
    }
    let mut other = record(9);
    other.event = Event::EgressDecided(egress("a,\"b\"\n", true));
    log.append(other).expect("append");
    let mut out = Vec::new();
    export(dir.path(), format, &|_| true, &mut out).expect("export");
    (dir, String::from_utf8(out).expect("text"))
}

#[test]
fn receipts_become_a_chain_that_agt_would_make_itself() {
    let (_dir, text) = exported(Format::Agt);
    let whole: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(whole["entry_count"], 8);
    let first = &whole["entries"][0];
    assert_eq!(first["event_type"], "sandbox.execute");
    assert_eq!(first["agent_did"], "a");
    assert_eq!(first["action"], "step:0");
    assert_eq!(first["resource"], "ticket:e0");
    assert_eq!(first["session_id"], "s");
    assert_eq!(first["data"]["azure_sandbox_id"], "s");
    assert_eq!(first["data"]["duration_seconds"], 1.5);
    assert_eq!(first["data"]["egress_decisions"][0]["host"], "example.org");
    assert_eq!(first["matched_rule"], "no policy is loaded");
    assert_eq!(first["previous_hash"], "");
    assert_eq!(whole["merkle_root"], whole["chain_root"]);

    // Fed back as AGT would read it: the same links, hashes, roots and proofs.
    let parsed = Agt::parse(&text).expect("json");
    let field = |value: &Agt, name: &str| match value {
        Agt::Dict(fields) => fields[&name.into()].clone(),
        other => panic!("{other:?}"),
    };
    let Agt::List(entries) = field(&parsed, "entries") else {
        panic!("no list");
    };
    for (entry, verdict) in entries.iter().zip(Verdict::ALL) {
        let entry = Entry::read(entry).expect("entry");
        assert_eq!(entry.hash(), entry.entry_hash);
        let decision = verdict.name().into();
        assert_eq!(entry.outcome, decision);
        assert_eq!(entry.unprotected.policy_decision, Some(decision));
    }
    let again = chain_of(&entries).expect("chain");
    for name in ["roots_after_each_append", "proofs"] {
        assert_eq!(field(&again, name), field(&parsed, name), "{name}");
    }
}

#[test]
fn cloudevents_have_what_the_specification_asks_for() {
    let (_dir, text) = exported(Format::CloudEvents);
    assert_eq!(text.lines().count(), 13);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("json");
        for name in ["id", "source", "type"] {
            assert!(!event[name].as_str().expect("text").is_empty(), "{name}");
        }
        assert_eq!(event["specversion"], "1.0");
        let time = event["time"].as_str().expect("text");
        time.parse::<jiff::Timestamp>().expect("RFC 3339");
        assert!(event.get("subject").is_none_or(|subject| subject != ""));
        assert_eq!(
            event["data"]["event"],
            event["type"].as_str().expect("text")[15..]
        );
    }
}

#[test]
fn ocsf_events_are_classified() {
    let (_dir, text) = exported(Format::Ocsf);
    assert_eq!(text.lines().count(), 13);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("json");
        let number = |name: &str| event[name].as_u64().expect("number");
        assert_eq!(number("category_uid"), number("class_uid") / 1000);
        assert_eq!(
            number("type_uid"),
            number("class_uid") * 100 + number("activity_id")
        );
        assert_eq!(event["metadata"]["version"], "1.6.0");
    }
    assert!(text.contains("\"dst_endpoint\":{\"hostname\":\"a,\\\"b\\\"\\n\",\"port\":443}"));
}

#[test]
fn a_table_has_one_line_per_record_and_no_formulas() {
    let (dir, text) = exported(Format::Csv);
    assert_eq!(text.lines().count(), 14);
    assert!(text.lines().all(|line| !line.contains(",=")), "{text}");
    fs::write(dir.path().join("x.csv"), &text).expect("write");
}

#[test]
fn a_flood_is_told_by_its_number() {
    let dir = tempfile::tempdir().expect("folder");
    let log = Log::open(dir.path(), Options::default()).expect("open");
    let mut attempt = record(1);
    attempt.event = Event::EgressDecided(egress("flood.example", false));
    for _ in 0..5000 {
        log.note(attempt.clone()).expect("note");
    }
    log.conclude(vec![receipt(1, Verdict::BlockedAtEgress)])
        .wait()
        .expect("conclude");
    let values: Vec<Value> = lines(dir.path())
        .iter()
        .map(|line| serde_json::from_str(line).expect("json"))
        .collect();
    let kept = values
        .iter()
        .filter(|value| value["record"]["event"] == "egress_decided")
        .count() as u64;
    let said: u64 = values
        .iter()
        .filter_map(|value| value["record"]["count"].as_u64())
        .sum();
    assert_eq!(kept + said, 5000);
    assert!(kept < 100);
    assert_eq!(
        values[1]["record"]["event"], "egress_decided",
        "the first is kept"
    );
    assert_eq!(values.last().expect("some")["record"]["event"], "receipt");
}
