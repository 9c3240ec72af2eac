//! The log in the formats of other systems.

use std::fs;

use crate::common::*;
use brig_audit::export::{Format, export};
use brig_audit::{Event, Log, Options, Recorder, Tool, Verdict};
use serde_json::Value;

fn exported(format: Format) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("directory");
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
    let dir = tempfile::tempdir().expect("directory");
    let log = Log::open(dir.path(), Options::default()).expect("open");
    let mut attempt = record(1);
    attempt.event = Event::ToolCalled(Tool {
        allowed: false,
        code: "tool".into(),
        rule: None,
        tool: "flood".into(),
        arguments_digest: None,
        success: None,
        ..Tool::default()
    });
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
        .filter(|value| value["record"]["event"] == "tool_called")
        .count() as u64;
    let said: u64 = values
        .iter()
        .filter_map(|value| value["record"]["count"].as_u64())
        .sum();
    assert_eq!(kept + said, 5000);
    assert!(kept < 100);
    assert_eq!(
        values[1]["record"]["event"], "tool_called",
        "the first is kept"
    );
    assert_eq!(values.last().expect("some")["record"]["event"], "receipt");
}
