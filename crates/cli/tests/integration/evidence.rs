//! What is not on record does not happen, and what is on record holds no secret.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::common::Brig;
use brig_testing::{again_by, passes, test_name};
use serde_json::Value;

const CHILD: &str = "BRIG_TEST_EVIDENCE_DISK";

fn ended(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.unwrap().success(), "{program} {arguments:?}");
}

/// Runs a test again, in a mount namespace of its own. Says whether this is that run, with a
/// small file system for the evidence.
fn on_small_disk(test: &str) -> Option<Brig> {
    if std::env::var_os(CHILD).is_some() {
        let brig = Brig::new();
        let state = brig.home().join("state");
        fs::create_dir(&state).unwrap();
        let state = state.to_str().unwrap();
        ended(
            "mount",
            &["-t", "tmpfs", "-o", "size=1m,mode=755", "none", state],
        );
        return Some(brig);
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "--"]);
    unshare.env(CHILD, "1");
    passes(again_by(unshare, test));
    None
}

/// Leaves no room on the file system of a folder.
fn fill(folder: &Path) {
    let mut file = fs::File::create(folder.join("fill")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

fn receipts(brig: &Brig) -> HashSet<String> {
    let done = brig.run(["audit", "show", "--json", "--event", "receipt"]);
    let text = done.exits(0).stdout();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["record"]["execution"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_full_disk_refuses_what_begins_and_fails_what_runs() {
    let Some(brig) = on_small_disk(&test_name!()) else {
        return;
    };
    let state = brig.home().join("state");
    let ran = ["run", "--", "echo", "ran"];
    brig.run(ran).exits(0).prints("ran\n");

    // It fills up while something runs. Excerpts of what that prints need more than what is left
    // of a page.
    let repeat = "echo begun; x=$(cat); echo $x; echo $x >&2";
    let mut running = brig
        .command(["run", "-i", "--", "sh", "-c", repeat])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = String::new();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    output.read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    fill(&state);
    let mut input = running.stdin.take().unwrap();
    input.write_all("\u{1f422}".repeat(600).as_bytes()).unwrap();
    drop(input);
    let answer = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left"), "{said}");

    // What is left of the page may hold some.
    let fitted = (0..10)
        .find(|_| brig.run(ran).0.status.code() == Some(125))
        .unwrap();
    brig.run(ran)
        .exits(125)
        .complains("the audit record could not be written");
    brig.run(["session", "create", "s"]).exits(125);
    brig.run(["audit", "verify"]).exits(0);
    fs::remove_file(state.join("fill")).unwrap();
    brig.run(ran).exits(0).prints("ran\n");
    brig.run(["audit", "verify"]).exits(0);
    assert_eq!(receipts(&brig).len(), fitted + 2);
}

#[test]
fn a_read_only_disk_refuses_and_can_be_read() {
    let Some(brig) = on_small_disk(&test_name!()) else {
        return;
    };
    brig.run(["run", "--", "echo", "ran"]).exits(0);
    let state = brig.home().join("state");
    let again = ["--options-mode=ignore", "-o", "remount,ro"];
    ended("mount", &[&again[..], &[state.to_str().unwrap()]].concat());
    brig.run(["run", "--", "echo", "ran"])
        .exits(125)
        .prints("")
        .complains("read-only file system");
    brig.run(["audit", "verify"]).exits(0);
    brig.run(["audit", "prove", "3"]).exits(0);
    brig.run(["audit", "head"]).exits(0);
    assert_eq!(receipts(&brig).len(), 1);
}

#[test]
fn what_was_answered_is_on_record_whoever_is_killed() {
    let brig = Brig::new();
    brig.run(["run", "--", "true"]).exits(0);
    let answered = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (brig, answered) = (&brig, &answered);
            scope.spawn(move || {
                for round in 0..8 {
                    let mut child = brig
                        .command(["run", "--json", "--", "true"])
                        .stdout(Stdio::piped())
                        .stderr(Stdio::null())
                        .spawn()
                        .unwrap();
                    if (round + thread) % 2 == 0 {
                        std::thread::sleep(Duration::from_millis(round * 7 + thread));
                        let _ = child.kill();
                    }
                    let done = child.wait_with_output().unwrap();
                    if done.status.success() {
                        let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
                        let id = answer["execution_id"].as_str().unwrap().to_owned();
                        answered.lock().unwrap().insert(id);
                    }
                }
            });
        }
    });
    brig.run(["run", "--", "true"]).exits(0);
    brig.run(["audit", "verify"]).exits(0);
    let (answered, found) = (answered.into_inner().unwrap(), receipts(&brig));
    assert!(answered.len() >= 12, "{}", answered.len());
    let lost: Vec<_> = answered.difference(&found).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn no_value_of_a_variable_is_ever_on_record() {
    let brig = Brig::new();
    let secret = "hunter2-\u{17c}\u{f3}\u{142}w";
    let given = format!("TOKEN={secret}");
    let print = "import os, sys; print(os.environ['TOKEN'] * 50); sys.exit(os.environ['TOKEN'])";
    brig.run(["run", "-e", &given, "-c", print]).exits(1);
    brig.run(["run", "-e", &given, "--output-max", "70", "-c", print]);
    brig.run(["run", "-e", &given, "--", secret]).exits(127);
    brig.run(["run", "-e", &given, "--cwd", secret, "--", "true"]);
    brig.run(["session", "create", "s", "-e", &given]).exits(0);
    brig.run(["session", "exec", "s", "-c", print]).exits(1);
    brig.run(["session", "destroy", "s"]).exits(0);
    assert!(receipts(&brig).len() >= 4);
    let log = brig.home().join("state/brig/audit");
    for entry in fs::read_dir(log).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("hunter"), "{text}");
    }
    for format in ["agt", "cloudevents", "ocsf", "csv"] {
        let done = brig.run(["audit", "export", "--format", format]).exits(0);
        assert!(!done.stdout().contains("hunter"), "{format}");
        assert!(done.stdout().contains("[redacted]"), "control: {format}");
    }
}

#[test]
fn a_log_is_followed() {
    let brig = Brig::new();
    brig.run(["run", "--agent", "early", "--", "true"]).exits(0);
    let mut follower = brig
        .command(["audit", "show", "--follow", "--json", "--event", "receipt"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut agent = || -> String {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["record"]["agent"].as_str().unwrap().to_owned()
    };
    assert_eq!(agent(), "early");
    for name in ["late", "later"] {
        brig.run(["run", "--agent", name, "--", "true"]).exits(0);
        assert_eq!(agent(), name);
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}
