//! `brig audit` over the evidence of real executions.

use std::fs;
use std::path::PathBuf;

use crate::common::Brig;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../agt-export/tests/vectors/agt-audit.json");

fn folder(brig: &Brig) -> PathBuf {
    brig.home().join("state/brig/audit")
}

fn segment(brig: &Brig) -> PathBuf {
    folder(brig).join(format!("{:020}.jsonl", 0))
}

/// Two executions of one agent, one of another.
fn used() -> Brig {
    let brig = Brig::new();
    brig.run(["run", "--agent", "alice", "--", "echo", "hello"])
        .exits(0);
    brig.run([
        "run",
        "--agent",
        "bob",
        "-e",
        "TOKEN=hunter2",
        "--",
        "sh",
        "-c",
        "echo $TOKEN",
    ])
    .exits(0);
    brig.run(["run", "--agent", "alice", "--", "sh", "-c", "exit 3"])
        .exits(3);
    brig
}

fn lines(brig: &Brig, args: &[&str]) -> Vec<Value> {
    let all = [&["audit", "show", "--json"], args].concat();
    let done = brig.run(all).exits(0);
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    done.stdout().lines().map(parse).collect()
}

#[test]
fn every_execution_leaves_records_and_no_secret() {
    let brig = used();
    let events: Vec<String> = lines(&brig, &["--agent", "alice"])
        .iter()
        .map(|line| line["record"]["event"].as_str().unwrap().to_owned())
        .collect();
    let one = [
        "session_created",
        "decided",
        "execution_started",
        "execution_finished",
        "receipt",
        "session_destroyed",
    ];
    assert_eq!(events, [one, one].concat());
    let receipts = lines(&brig, &["--event", "receipt"]);
    let decisions: Vec<&Value> = receipts
        .iter()
        .map(|line| &line["record"]["decision"])
        .collect();
    assert_eq!(decisions, ["allowed", "allowed", "error"]);
    assert_eq!(receipts[0]["record"]["stdout"]["excerpt"], "hello␊");
    assert_eq!(receipts[2]["record"]["reason"], "exit code 3");
    let text = fs::read_to_string(segment(&brig)).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("[redacted]"));
}

#[test]
fn what_could_not_be_started_is_on_record() {
    let brig = Brig::new();
    brig.run(["run", "--", "/nonexistent"]).exits(127);
    let records = lines(&brig, &["--event", "execution_failed"]);
    assert_eq!(records[0]["record"]["code"], "run.cannot-start");
    let receipts = lines(&brig, &["--event", "receipt"]);
    assert_eq!(receipts[0]["record"]["decision"], "error");
    assert_eq!(receipts[0]["record"]["code"], "run.cannot-start");
}

#[test]
fn what_is_done_without_is_on_record() {
    let brig = Brig::new();
    brig.run(["run", "--waive", "memory,cpu", "--", "true"])
        .exits(0);
    let mut waived: Vec<String> = lines(&brig, &["--event", "control_waived"])
        .iter()
        .map(|line| line["record"]["control"].as_str().unwrap().to_owned())
        .collect();
    waived.sort();
    assert_eq!(waived, ["cpu", "memory"]);
    assert_eq!(
        lines(&brig, &["--event", "receipt"])[0]["record"]["waived"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_session_leaves_its_story() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    brig.run(["session", "exec", "s", "--", "touch", "a"])
        .exits(0);
    brig.run(["session", "checkpoint", "s", "c"]).exits(0);
    brig.run(["session", "restore", "s", "c"]).exits(0);
    brig.run(["session", "fork", "s", "c", "--as", "t"])
        .exits(0);
    brig.run(["session", "exec", "s", "--", "false"]).exits(1);
    brig.run(["session", "checkpoint", "s", "--rm", "c"])
        .exits(0);
    brig.run(["session", "destroy", "s", "t"]).exits(0);
    let story = |session: &str| -> Vec<String> {
        lines(&brig, &["--session", session])
            .iter()
            .map(|line| line["record"]["event"].as_str().unwrap().to_owned())
            .filter(|event| event != "decided" && event != "execution_started")
            .collect()
    };
    assert_eq!(
        story("s"),
        [
            "session_created",
            "execution_finished",
            "receipt",
            "checkpoint_saved",
            "session_restored",
            "execution_finished",
            "receipt",
            "checkpoint_deleted",
            "session_destroy_requested",
            "session_destroyed"
        ]
    );
    assert_eq!(
        story("t"),
        [
            "session_created",
            "session_forked",
            "session_destroy_requested",
            "session_destroyed"
        ]
    );
    let steps: Vec<u64> = lines(&brig, &["--event", "receipt"])
        .iter()
        .map(|line| line["record"]["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [0, 1]);
}

#[test]
fn records_are_filtered_and_shown() {
    let brig = used();
    assert_eq!(lines(&brig, &["--decision", "error"]).len(), 1);
    assert_eq!(
        lines(&brig, &["--since", "1h"]).len(),
        lines(&brig, &[]).len()
    );
    assert_eq!(lines(&brig, &["--until", "1h"]).len(), 0);
    assert_eq!(
        lines(&brig, &["--since", "2000-01-01", "--event", "receipt"]).len(),
        3
    );
    assert_eq!(lines(&brig, &["-n", "2"]).len(), 2);
    let done = brig.run(["audit", "show", "--event", "receipt"]).exits(0);
    let table = done.stdout();
    assert!(table.starts_with("SEQ"), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.contains("exit 3"), "{table}");
    brig.run(["audit", "show", "--agent", "nobody"])
        .exits(0)
        .prints("")
        .complains("no such records");
    brig.run(["audit", "show", "--decision", "maybe"])
        .exits(125);
    Brig::new()
        .run(["audit", "show"])
        .exits(125)
        .complains("there is no log");
}

#[test]
fn a_log_is_verified_and_what_was_done_to_it_is_named() {
    let brig = used();
    let done = brig.run(["audit", "verify", "--json"]).exits(0);
    assert_eq!(done.json()["records"], 19);
    let head = brig.run(["audit", "head"]).exits(0).stdout();
    brig.write("head.txt", &head);
    fs::copy(folder(&brig).join("key.pub"), brig.home().join("key.pub")).unwrap();
    let with_head = ["audit", "verify", "--head", "head.txt", "--key", "key.pub"];
    brig.run(with_head)
        .exits(0)
        .complains("")
        .prints("ok: 19 records in 1 segment, signed up to record 18\n");

    let good = fs::read_to_string(segment(&brig)).unwrap();
    fs::write(
        segment(&brig),
        good.replacen("\"agent\":\"bob\"", "\"agent\":\"eve\"", 1),
    )
    .unwrap();
    brig.run(["audit", "verify"])
        .exits(1)
        .complains("record 7 (00000000000000000000.jsonl, line 8): it was changed");
    let fault = brig.run(["audit", "verify", "--json"]).exits(1).json();
    assert_eq!(fault["fault"]["code"], "audit.changed");
    assert_eq!(fault["fault"]["record"], 7);

    let shorter: Vec<&str> = good.lines().take(9).collect();
    fs::write(segment(&brig), shorter.join("\n") + "\n").unwrap();
    brig.run(["audit", "verify"])
        .exits(1)
        .complains("record 9: it is missing");
    brig.run(["run", "--", "true"])
        .exits(125)
        .complains("the log ends after 9 records");

    // All of it replaced by a log that is fine by itself.
    fs::remove_dir_all(folder(&brig)).unwrap();
    brig.run(["run", "--", "true"]).exits(0);
    brig.run(["audit", "verify"]).exits(0);
    brig.run(with_head).exits(1);
    brig.run(["audit", "verify", "--head", "head.txt"]).exits(1);
}

#[test]
fn records_are_proved_without_the_log() {
    let brig = used();
    fs::copy(folder(&brig).join("key.pub"), brig.home().join("key.pub")).unwrap();
    let receipt = &lines(&brig, &["--event", "receipt"])[0];
    let execution = receipt["record"]["execution"].as_str().unwrap();
    let hash = receipt["hash"].as_str().unwrap();
    let number = receipt["seq"].to_string();
    let proof = brig.run(["audit", "prove", execution]).exits(0).stdout();
    assert_eq!(brig.run(["audit", "prove", hash]).exits(0).stdout(), proof);
    assert_eq!(
        brig.run(["audit", "prove", &number]).exits(0).stdout(),
        proof
    );
    brig.run(["audit", "prove", "999"])
        .exits(125)
        .complains("no record 999");
    brig.run(["audit", "prove", "nothing"]).exits(125);

    brig.run_with_input(["audit", "check-proof", "-"], proof.as_bytes())
        .exits(0);
    fs::rename(folder(&brig), brig.home().join("away")).unwrap();
    brig.write("proof.json", &proof);
    brig.write("forged.json", &proof.replace("hello", "hallo"));
    let check = |file: &str| brig.run(["audit", "check-proof", file, "--key", "key.pub"]);
    check("proof.json").exits(0);
    check("forged.json").exits(1);
    brig.write("empty.json", "{}");
    check("empty.json").exits(1);
}

#[test]
fn heads_follow_each_other_across_keys() {
    let brig = used();
    let head = |name: &str| {
        let head = brig.run(["audit", "head"]).exits(0).stdout();
        brig.write(name, &head);
    };
    head("old.txt");
    let key = brig.run(["audit", "rotate-key"]).exits(0).stdout();
    assert_eq!(
        fs::read_to_string(folder(&brig).join("key.pub")).unwrap(),
        key
    );
    brig.run(["run", "--", "true"]).exits(0);
    head("new.txt");
    brig.run(["audit", "consistency", "old.txt", "new.txt"])
        .exits(0);
    brig.run(["audit", "consistency", "new.txt", "old.txt"])
        .exits(1);
    let proof = brig
        .run(["audit", "consistency", "old.txt", "new.txt", "--json"])
        .exits(0)
        .stdout();
    brig.run_with_input(["audit", "check-proof", "-"], proof.as_bytes())
        .exits(0);
    for file in ["old.txt", "new.txt"] {
        brig.run(["audit", "verify", "--head", file]).exits(0);
    }
    let parsed = brig.run(["audit", "head", "--json"]).exits(0).json();
    assert_eq!(parsed["size"], 26);
}

#[test]
fn the_log_is_exported() {
    let brig = used();
    for (format, count) in [("cloudevents", 19), ("ocsf", 19), ("csv", 20)] {
        let done = brig.run(["audit", "export", "--format", format]).exits(0);
        assert_eq!(done.stdout().lines().count(), count, "{format}");
    }
    let whole = brig
        .run(["audit", "export", "--format", "agt"])
        .exits(0)
        .json();
    assert_eq!(whole["entry_count"], 3);
    assert_eq!(whole["entries"][2]["outcome"], "error");
    let entries = whole["entries"].to_string();
    let chain = brig
        .run_with_input(["audit", "agt-chain", "-"], entries.as_bytes())
        .exits(0)
        .json();
    assert_eq!(chain["proofs"], whole["proofs"]);
    assert_eq!(
        chain["roots_after_each_append"],
        whole["roots_after_each_append"]
    );
    assert_eq!(chain["hashes"][2], whole["entries"][2]["entry_hash"]);
    brig.run(["audit", "export", "--format", "xml"]).exits(125);
}

#[test]
fn chains_of_agt_are_answered_as_agt_does() {
    let brig = Brig::new();
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for (case, line) in vectors
        .as_array()
        .unwrap()
        .iter()
        .zip(VECTORS.lines().skip(1))
    {
        // As text: numbers of any size must reach the command as they are.
        let end = line.find("],\"expect\"").unwrap();
        let entries = &line["{\"entries\":".len()..=end];
        let done = brig
            .run_with_input(["audit", "agt-chain", "-"], entries.as_bytes())
            .exits(0);
        assert_eq!(done.json(), case["expect"]);
    }
    brig.run_with_input(["audit", "agt-chain", "-"], b"[{}]")
        .exits(125)
        .complains("entry 0: the field");
    brig.run_with_input(["audit", "agt-chain", "-"], b"{}")
        .exits(125);
}

#[test]
fn what_cannot_be_recorded_does_not_run() {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("state/brig")).unwrap();
    fs::write(folder(&brig), "in the way").unwrap();
    brig.run(["run", "--", "sh", "-c", "echo ran"])
        .exits(125)
        .prints("")
        .complains("the audit record could not be written");
    brig.run(["session", "create", "s"])
        .exits(125)
        .complains("the audit record could not be written");
    fs::remove_file(folder(&brig)).unwrap();
    brig.run(["run", "--", "sh", "-c", "echo ran"])
        .exits(0)
        .prints("ran\n");
}

#[test]
fn results_may_wait_for_the_disk() {
    let brig = Brig::new();
    for (value, code) in [("1s", 0), ("always", 0), ("soon", 125)] {
        let output = brig
            .command(["run", "--", "true"])
            .env("BRIG_AUDIT_SYNC", value)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{value}");
    }
    assert_eq!(lines(&brig, &["--event", "receipt"]).len(), 2);
    let unsigned = || brig.run(["audit", "verify", "--json"]).exits(0).json()["unsigned"].clone();
    assert_eq!(unsigned(), 0);
    let mut quick = brig.command(["run", "--", "true"]);
    quick.env("BRIG_AUDIT_SYNC", "1h");
    assert!(quick.status().unwrap().success());
    assert_eq!(unsigned(), 3, "written, and left to the next one");
    brig.run(["run", "--", "true"]).exits(0);
    assert_eq!(unsigned(), 0);
}

#[test]
fn the_evidence_is_out_of_reach_of_what_it_is_about() {
    let brig = Brig::new();
    let write = ["sh", "-c", "ls -R /workspace; rm -rf /workspace/state"];
    for place in [".", "state", "state/brig", "state/brig/audit"] {
        fs::create_dir_all(brig.home().join("state/brig/audit")).unwrap();
        let start = ["run", "--workspace", place, "--"];
        brig.run([&start[..], &write].concat())
            .exits(125)
            .complains("Brig keeps its own state there");
    }
    fs::remove_dir_all(brig.home().join("state")).unwrap();
    let first = ["run", "--workspace", ".", "--", "true"];
    brig.run(first)
        .exits(125)
        .complains("Brig keeps its own state there");
    fs::create_dir_all(brig.home().join("project")).unwrap();
    brig.run(["run", "--workspace", "project", "--", "true"])
        .exits(0);
}

#[test]
fn the_last_records_are_those_at_the_end() {
    let brig = used();
    let all = lines(&brig, &[]);
    for count in [0, 1, 3, all.len(), all.len() + 5] {
        let last = lines(&brig, &["--last", &count.to_string()]);
        assert_eq!(last, all[all.len().saturating_sub(count)..], "{count}");
    }
    let alice = lines(&brig, &["--agent", "alice", "--event", "receipt"]);
    assert_eq!(alice.len(), 2);
    let last = lines(
        &brig,
        &["--agent", "alice", "--event", "receipt", "-n", "1"],
    );
    assert_eq!(last, alice[1..]);
    assert!(lines(&brig, &["--agent", "ali", "-n", "5"]).is_empty());
    // A record that was changed is reported from this side too.
    let text = fs::read_to_string(segment(&brig)).unwrap();
    fs::write(
        segment(&brig),
        text.replace("\"exit_code\":3", "\"exit_code\":0"),
    )
    .unwrap();
    brig.run(["audit", "show", "-n", "2"])
        .exits(125)
        .complains("damaged");
}

/// What somebody appended is neither signed nor shown as part of the log by the next run.
#[test]
fn a_run_does_not_sign_what_somebody_appended() {
    let brig = used();
    let text = fs::read_to_string(segment(&brig)).unwrap();
    // The same line again, as the next one: only the key is missing.
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let prev = last["hash"].as_str().unwrap();
    let seq = last["seq"].as_u64().unwrap() + 1;
    let mut out = Vec::new();
    let hash = brig_audit::Hash::from_hex(prev.as_bytes()).unwrap();
    let record = last["record"].to_string().replace("alice", "mallory");
    brig_audit::line::write(&record, seq, &hash, None, &mut out);
    fs::write(segment(&brig), [text.as_bytes(), &out].concat()).unwrap();
    brig.run(["audit", "verify"])
        .exits(1)
        .complains("not written with the log's key");
    brig.run(["run", "--", "true"]).exits(0);
    brig.run(["audit", "verify"]).exits(0);
    assert!(
        !fs::read_to_string(segment(&brig))
            .unwrap()
            .contains("mallory")
    );
    assert_eq!(lines(&brig, &["--event", "log_repaired"]).len(), 1);
}

#[test]
fn the_size_of_the_log_is_known_and_nothing_young_is_pruned() {
    let brig = used();
    brig.run(["audit", "verify", "--since-last"]).exits(0);
    let object = brig.run(["doctor", "--json"]).json();
    assert_eq!(object["audit"]["segments"], 1);
    assert!(object["audit"]["bytes"].as_u64().unwrap() > 1000);
    assert!(brig.run(["doctor"]).stdout().contains("audit log: "));
    let object = brig
        .run(["audit", "prune", "--before", "0s", "--keep-head", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        (&object["removed"], &object["segments"]),
        (&false.into(), &0.into())
    );
    brig.run(["audit", "prune", "--before", "90d", "--dry-run"])
        .exits(0)
        .complains("the newest segment is always kept");
    brig.run(["audit", "verify"]).exits(0);
}
