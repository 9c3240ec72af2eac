//! AGT's own answers, byte for byte.

use brig_agt_export::{AgtEntry, Chain, Side, Value, chain_of};

const VECTORS: &str = include_str!("../vectors/agt-audit.json");

fn list(value: &Value) -> &[Value] {
    match value {
        Value::List(items) => items,
        other => panic!("{other:?}"),
    }
}

fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    match value {
        Value::Dict(fields) => &fields[&name.into()],
        other => panic!("{other:?}"),
    }
}

#[test]
fn chains_are_those_of_agt() {
    let vectors = Value::parse(VECTORS).expect("vectors");
    assert_eq!(list(&vectors).len(), 6);
    for case in list(&vectors) {
        let expected = field(case, "expect");
        let entries = list(field(case, "entries"));
        let answer = chain_of(entries).expect("entries");
        for name in ["canonical", "hashes", "roots_after_each_append", "proofs"] {
            assert_eq!(field(&answer, name), field(expected, name), "{name}");
        }
    }
}

fn entry(id: &str) -> AgtEntry {
    let text = format!(
        "{{\"entry_id\":\"{id}\",\"timestamp\":\"2026-05-12T00:00:00Z\",\
         \"event_type\":\"t\",\"agent_did\":\"a\",\"action\":\"x\"}}"
    );
    AgtEntry::read(&Value::parse(&text).expect("json")).expect("entry")
}

#[test]
fn proofs_hold_in_trees_of_every_size() {
    let mut chain = Chain::default();
    let mut entries: Vec<AgtEntry> = Vec::new();
    for n in 0..70 {
        let mut next = entry(&format!("audit_{n}"));
        chain.add(&mut next);
        assert_eq!(next.hash(), next.entry_hash);
        let previous = entries.last().map_or("", |last| &last.entry_hash);
        assert_eq!(next.previous_hash.as_str(), Some(previous));
        entries.push(next);
        let root = chain.root().expect("root");
        for one in &entries {
            let path = chain.proof(&one.entry_id).expect("proof");
            assert!(Chain::verify_proof(&one.entry_hash, &path, &root), "{n}");
        }
    }
    assert_eq!(chain.proof(&"audit_99".into()), None);
}

/// AGT looks an entry up by its id, and finds the first.
#[test]
fn of_entries_with_the_same_id_the_first_is_proved() {
    let mut chain = Chain::default();
    for _ in 0..3 {
        chain.add(&mut entry("audit_same"));
    }
    let path = chain.proof(&"audit_same".into()).expect("proof");
    assert_eq!(path[0].1, Side::Right);
}

#[test]
fn entries_that_agt_refuses_are_refused() {
    let base = "\"event_type\":\"t\",\"agent_did\":\"a\",\"action\":\"x\"";
    let read = |more: &str| {
        let value = Value::parse(&format!("{{{base}{more}}}")).expect("json");
        AgtEntry::read(&value)
    };
    read("").expect("control");
    // Python's texts may hold half of a pair, and are hashed as they are.
    let half = read(",\"resource\":\"\\ud800\",\"matched_rule\":\"\\udfff\"").expect("control");
    assert!(half.canonical().contains("\"resource\": \"\\ud800\""));
    read(",\"resource\":null,\"trace_id\":null,\"unknown\":[1]").expect("control");
    for more in [
        ",\"data\":null",
        ",\"data\":[]",
        ",\"outcome\":null",
        ",\"outcome\":1",
        ",\"entry_id\":null",
        ",\"timestamp\":\"yesterday\"",
        ",\"timestamp\":null",
        ",\"resource\":1",
        ",\"session_id\":true",
        ",\"issued_at\":\"x\"",
        ",\"timestamp\":\"\\ud800\"",
    ] {
        assert!(read(more).is_err(), "{more}");
    }
    for text in [
        "{}",
        "[]",
        "null",
        "{\"event_type\":\"t\",\"agent_did\":\"a\"}",
    ] {
        assert!(
            AgtEntry::read(&Value::parse(text).expect("json")).is_err(),
            "{text}"
        );
    }
}
