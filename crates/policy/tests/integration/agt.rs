//! The answers of the published AGT 4.0.0, which Brig must give too.

use brig_policy::eval_line;
use serde_json::Value;

#[test]
fn every_answer_of_agt_is_brigs_answer() {
    let vectors = include_str!("../vectors/agt-policy.jsonl");
    let mut differences = Vec::new();
    let mut count = 0;
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).expect("a vector");
        let answer: Value = serde_json::from_str(&eval_line(line)).expect("an answer");
        let expected = &vector["expect"]["decision"];
        assert_eq!(answer["id"], vector["id"]);
        let same = ["allowed", "matched_rule", "action", "reason"]
            .iter()
            .all(|key| answer[key] == expected[key]);
        if !same {
            differences.push(format!("{}: {answer} is not {expected}", vector["id"]));
        }
        count += 1;
    }
    assert_eq!(count, 400);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
