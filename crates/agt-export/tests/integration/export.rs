//! Receipts of a log as AGT's chain.

use crate::common::*;
use brig_agt_export::{AgtEntry, Value as Agt, chain_of, export};
use brig_audit::{Recorder, Verdict};
use serde_json::Value;

#[test]
fn receipts_become_a_chain_that_agt_would_make_itself() {
    let dir = tempfile::tempdir().expect("directory");
    let log = filled(dir.path(), small_segments(), 3);
    for (step, decision) in (0..).zip(Verdict::ALL) {
        log.append(receipt(step, decision)).expect("append");
    }
    let mut out = Vec::new();
    export(dir.path(), &|_| true, &mut out).expect("export");
    let text = String::from_utf8(out).expect("text");
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
        let entry = AgtEntry::read(entry).expect("entry");
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
