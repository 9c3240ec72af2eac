//! Proofs that hold, and everything that looks like one.

use std::fs;

use crate::common::*;
use brig_audit::note::{PublicKey, SecretKey};
use brig_audit::proof::{prove, prove_consistency};
use brig_audit::{Head, Log, Options, Proof, Proved};
use serde_json::Value;

#[test]
fn every_record_can_be_proved_with_the_public_key_alone() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), small_segments(), 70));
    let key = fs::read_to_string(dir.path().join("key.pub")).expect("key");
    let key = PublicKey::parse(&key).expect("key");
    for seq in 0..71 {
        let proof = prove(dir.path(), seq).expect("proof");
        let text = serde_json::to_string(&proof).expect("json");
        let again: Proof = serde_json::from_str(&text).expect("json");
        match again.check(std::slice::from_ref(&key)).expect("holds") {
            Proved::Included {
                seq: found, head, ..
            } => assert_eq!((found, head.size), (seq, 71)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        prove(dir.path(), 71).expect_err("none").code(),
        "audit.no-record"
    );
    let stranger = SecretKey::new(key.name(), [9; 32]).expect("key");
    let proof = prove(dir.path(), 3).expect("proof");
    assert!(proof.check(&[stranger.public().clone()]).is_err());
}

#[test]
fn a_proof_does_not_hold_after_any_change() {
    let dir = tempfile::tempdir().expect("directory");
    drop(filled(dir.path(), Options::default(), 20));
    let key = fs::read_to_string(dir.path().join("key.pub")).expect("key");
    let key = PublicKey::parse(&key).expect("key");
    let (five, six) = (
        prove(dir.path(), 5).expect("proof"),
        prove(dir.path(), 6).expect("proof"),
    );
    let json = |proof: &Proof| serde_json::to_value(proof).expect("json");
    let holds = |value: Value| {
        let proof: Option<Proof> = serde_json::from_value(value).ok();
        proof.is_some_and(|proof| proof.check(std::slice::from_ref(&key)).is_ok())
    };
    assert!(holds(json(&five)));
    for pointer in [
        "/line/record/agent",
        "/line/hash",
        "/line/prev",
        "/path/0",
        "/path/2",
        "/head",
    ] {
        let mut value = json(&five);
        let place = value.pointer_mut(pointer).expect("field");
        let text = place.as_str().expect("text");
        let last = if text.ends_with('0') { "1" } else { "0" };
        *place = Value::from(format!("{}{last}", &text[..text.len() - 1]));
        assert!(!holds(value), "{pointer}");
    }
    let mut value = json(&five);
    value["line"] = json(&six)["line"].clone();
    assert!(!holds(value));
    let mut value = json(&five);
    value["line"]["seq"] = Value::from(6);
    assert!(!holds(value));
    let mut value = json(&five);
    value["path"]
        .as_array_mut()
        .expect("list")
        .push(json(&five)["path"][0].clone());
    assert!(!holds(value));
    let mut value = json(&five);
    value["more"] = Value::Null;
    assert!(!holds(value), "what is not checked is not accepted");
}

#[test]
fn a_later_head_is_consistent_with_an_earlier_one_and_not_with_another() {
    let dir = tempfile::tempdir().expect("directory");
    let (path, early) = (dir.path().join("log"), dir.path().join("early"));
    let log = filled(&path, Options::default(), 9);
    let old = log.head().expect("head");
    copy(&path, &early);
    for n in 0..20 {
        log.append_all(&[record(n)]).expect("append");
    }
    let new = log.head().expect("head");
    let key = fs::read_to_string(path.join("key.pub")).expect("key");
    let key = PublicKey::parse(&key).expect("key");
    let proof = prove_consistency(&path, &old, &new).expect("proof");
    match proof.check(std::slice::from_ref(&key)).expect("holds") {
        Proved::Consistent { old, new } => assert_eq!((old.size, new.size), (10, 30)),
        other => panic!("{other:?}"),
    }
    prove_consistency(&path, &old, &old).expect("same");
    assert!(prove_consistency(&path, &new, &old).is_err(), "backwards");

    // Another history after the same beginning.
    let fork = Log::open(&early, Options::default()).expect("open");
    for n in 50..75 {
        fork.append_all(&[record(n)]).expect("append");
    }
    let forked = fork.head().expect("head");
    Head::open(&forked, &key).expect("control: signed by the same key");
    prove_consistency(&early, &old, &forked).expect("control");
    assert!(prove_consistency(&path, &new, &forked).is_err());
    assert!(prove_consistency(&early, &new, &forked).is_err());
    let Proof::Consistency { old, path, .. } = proof else {
        panic!("kind");
    };
    let mixed = Proof::Consistency {
        old,
        new: forked,
        path,
    };
    assert!(mixed.check(std::slice::from_ref(&key)).is_err());
}
