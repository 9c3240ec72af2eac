//! `brig session`: files live across executions, and across processes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::Brig;
use serde_json::json;

fn create(brig: &Brig, id: &str) {
    brig.run(["session", "create", id])
        .exits(0)
        .prints(&format!("{id}\n"))
        .stays_silent();
}

#[test]
fn files_stay_and_processes_do_not() {
    let brig = Brig::new();
    let seconds = format!("63.{}", crate::common::digits());
    let id = brig.run(["session", "create"]).exits(0).stdout();
    let id = id.trim();
    brig.run([
        "session",
        "exec",
        id,
        "-c",
        "open('a.txt', 'w').write('kept')",
    ])
    .exits(0);
    brig.run(["session", "exec", id, "--", "cat", "a.txt"])
        .exits(0)
        .prints("kept");
    brig.run([
        "session",
        "exec",
        id,
        "--",
        "sh",
        "-c",
        &format!("sleep {seconds} & exit 5"),
    ])
    .exits(5);
    assert!(!crate::common::is_running(&format!("sleep\0{seconds}")));
    brig.run([
        "session", "exec", id, "-e", "A=b", "--", "sh", "-c", "echo $A",
    ])
    .prints("b\n");
    brig.run([
        "session",
        "exec",
        id,
        "--timeout",
        "200ms",
        "--",
        "sleep",
        "9",
    ])
    .exits(124)
    .complains("--timeout");
    brig.run_with_input(["session", "exec", "-i", id, "--", "cat"], b"in")
        .exits(0)
        .prints("in");
    let object = brig
        .run(["session", "exec", id, "--json", "--", "echo", "x"])
        .exits(0)
        .json();
    assert_eq!(object["session_id"], id);
    assert_eq!(object["result"]["stdout"], "x\n");
}

#[test]
fn sessions_are_listed_inspected_and_destroyed() {
    let brig = Brig::new();
    brig.run(["session", "ls"])
        .exits(0)
        .prints("")
        .complains("no sessions");
    create(&brig, "one");
    brig.run([
        "session", "create", "one", "--agent", "alice", "--disk", "1G",
    ])
    .exits(0);
    brig.run(["session", "create", "one"])
        .exits(125)
        .complains("already exists");

    let listed = brig.run(["session", "ls"]).exits(0).stdout();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let object = brig
        .run(["session", "ls", "--json", "--agent", "alice"])
        .exits(0)
        .json();
    assert_eq!(object["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(object["sessions"][0]["agent_id"], "alice");
    assert_eq!(object["sessions"][0]["session_id"], "one");
    assert_eq!(object["sessions"][0]["status"], "ready");

    brig.run(["session", "inspect", "one"])
        .exits(125)
        .complains("default/one");
    let shown = brig
        .run(["session", "inspect", "alice/one"])
        .exits(0)
        .stdout();
    assert!(shown.contains("alice") && shown.contains("1G"), "{shown}");
    brig.run(["session", "destroy", "alice/one", "one"])
        .exits(0);
    brig.run(["session", "destroy", "one"])
        .exits(0)
        .complains("no session `one`");
    brig.run(["session", "ls", "--json"])
        .exits(0)
        .prints("{\"sessions\":[]}\n");
}

#[test]
fn files_are_copied_in_and_out_and_never_replaced_silently() {
    let brig = Brig::new();
    create(&brig, "s");
    brig.write("a.txt", "first");
    brig.run(["session", "cp", "a.txt", "s:a.txt"])
        .exits(0)
        .prints("")
        .stays_silent();
    brig.run(["session", "exec", "s", "--", "cat", "a.txt"])
        .prints("first");
    brig.run(["session", "cp", "a.txt", "s:"])
        .exits(125)
        .complains("--force");
    brig.write("a.txt", "second");
    brig.run(["session", "cp", "--force", "a.txt", "s:/workspace/a.txt"])
        .exits(0);
    brig.run(["session", "cp", "s:a.txt", "-"])
        .exits(0)
        .prints("second");
    brig.run(["session", "cp", "s:a.txt", "a.txt"])
        .exits(125)
        .complains("already exists");
    brig.run(["session", "cp", "s:a.txt", "b.txt"]).exits(0);
    assert_eq!(
        std::fs::read_to_string(brig.home().join("b.txt")).unwrap(),
        "second"
    );
    brig.run_with_input(["session", "cp", "-", "s:c.bin"], b"\0\xff")
        .exits(0);
    let done = brig.run(["session", "cp", "s:c.bin", "-"]).exits(0);
    assert_eq!(done.0.stdout, b"\0\xff");
    std::fs::create_dir(brig.home().join("out")).unwrap();
    brig.run(["session", "cp", "s:c.bin", "out"]).exits(0);
    assert!(brig.home().join("out/c.bin").exists());
    brig.run(["session", "cp", "out", "s:out"])
        .exits(125)
        .complains("copy a directory with -r");
    brig.run(["session", "cp", "s:nothing", "x"]).exits(125);
    assert!(!brig.home().join("x").exists());
    let object = brig
        .run(["session", "cp", "--json", "b.txt", "s:d.txt"])
        .exits(0)
        .json();
    assert_eq!(object, json!({ "path": "d.txt", "bytes": 6 }));
}

/// What can't be looked at may hold a file of that name.
#[test]
fn a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one() {
    let brig = Brig::new();
    create(&brig, "s");
    brig.write("a.txt", "new");
    let inside = |script: &str| brig.run(["session", "exec", "s", "--", "sh", "-c", script]);
    inside("mkdir d && printf old >d/a.txt && chmod 300 d").exits(0);
    brig.run(["session", "cp", "a.txt", "s:d/a.txt"]).exits(125);
    inside("cat d/a.txt").prints("old");
    inside("chmod 700 d").exits(0);
    brig.run(["session", "cp", "--force", "a.txt", "s:d/a.txt"])
        .exits(0);
    inside("cat d/a.txt").prints("new");
    brig.run(["session", "cp", "a.txt", "s:none/a.txt"])
        .exits(0);
    inside("cat none/a.txt").prints("new");
}

#[test]
fn what_comes_out_is_not_executable() {
    let brig = Brig::new();
    create(&brig, "s");
    brig.run([
        "session",
        "exec",
        "s",
        "--",
        "sh",
        "-c",
        "echo x > p; chmod 755 p",
    ])
    .exits(0);
    brig.run(["session", "cp", "s:p", "p"]).exits(0);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(brig.home().join("p"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0, "{mode:o}");
}

#[test]
fn checkpoints_bring_files_back_and_start_new_sessions() {
    let brig = Brig::new();
    create(&brig, "s");
    brig.run(["session", "exec", "s", "--", "sh", "-c", "echo one > f"])
        .exits(0);
    brig.run(["session", "checkpoint", "s", "before"]).exits(0);
    brig.run(["session", "checkpoint", "s", "before"])
        .exits(125)
        .complains("already exists");
    brig.run([
        "session",
        "exec",
        "s",
        "--",
        "sh",
        "-c",
        "echo two > f; echo new > g",
    ])
    .exits(0);
    brig.run(["session", "restore", "s", "before"]).exits(0);
    brig.run(["session", "exec", "s", "--", "sh", "-c", "cat f; ls"])
        .prints("one\nf\n");

    brig.run(["session", "fork", "s", "before", "--as", "t"])
        .exits(0)
        .prints("t\n");
    brig.run(["session", "exec", "t", "--", "sh", "-c", "echo three > f"])
        .exits(0);
    brig.run(["session", "exec", "s", "--", "cat", "f"])
        .prints("one\n");

    let object = brig
        .run(["session", "checkpoint", "s", "--ls", "--json"])
        .exits(0)
        .json();
    assert_eq!(object["checkpoints"][0]["name"], "before");
    assert!(
        brig.run(["session", "checkpoint", "s", "--ls"])
            .stdout()
            .contains("before")
    );
    brig.run(["session", "checkpoint", "s", "--rm", "before"])
        .exits(0);
    brig.run(["session", "restore", "s", "before"])
        .exits(125)
        .complains("no checkpoint");
    brig.run(["session", "checkpoint", "s"]).exits(125);
}

#[test]
fn a_busy_session_can_be_looked_at_and_destroyed() {
    let brig = Brig::new();
    let seconds = format!("64.{}", crate::common::digits());
    create(&brig, "s");
    let mut child = brig
        .command([
            "session",
            "exec",
            "s",
            "--",
            "sh",
            "-c",
            &format!("echo up; exec sleep {seconds}"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");

    let started = Instant::now();
    let object = brig
        .run(["session", "inspect", "--json", "s"])
        .exits(0)
        .json();
    assert_eq!(object["status"], "executing");
    assert_eq!(object["config"]["limits"]["processes"]["value"], 256);
    brig.run(["session", "checkpoint", "s", "--ls"]).exits(0);
    assert!(started.elapsed() < Duration::from_secs(20), "nothing waits");

    brig.run(["session", "destroy", "s"]).exits(0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(!crate::common::is_running(&format!("sleep\0{seconds}")));
    brig.run(["session", "inspect", "s"])
        .exits(125)
        .complains("no session");
}

#[test]
fn an_execution_has_its_own_limit_of_output() {
    let brig = Brig::new();
    create(&brig, "s");
    let kept = |words: &[&str]| {
        let words = ["session", "exec", "--json"].iter().chain(words);
        let words = words.chain(&["-c", "print('x' * 5000)"]);
        let object = brig.run(words).exits(0).json();
        object["result"]["stdout"].as_str().unwrap().len()
    };
    assert_eq!(kept(&["s"]), 5001);
    assert_eq!(kept(&["--output-max", "1K", "s"]), 1024);
    brig.run(["session", "create", "t", "--output-max", "2K"])
        .exits(0);
    // The smaller of the two.
    assert_eq!(kept(&["--output-max", "4K", "t"]), 2048);
    assert_eq!(kept(&["--output-max", "1K", "t"]), 1024);
    brig.run(["session", "exec", "--output-max", "2T", "s", "-c", "1"])
        .exits(125);
}

#[test]
fn what_a_session_may_reach_is_shown_with_its_layer() {
    let brig = Brig::new();
    create(&brig, "s");
    let shown = || brig.run(["session", "inspect", "s"]).exits(0).stdout();
    assert!(shown().contains("network     off\n"), "{}", shown());
    brig.run(["session", "network", "allow", "s", "one.example"])
        .exits(0);
    brig.run(["sandbox", "allow", "two.example"]).exits(0);
    brig.run(["sandbox", "block", "three.example"]).exits(0);
    let text = shown();
    for line in [
        "session allows one.example",
        "user config allows two.example",
        "user config blocks three.example",
    ] {
        assert!(text.contains(&format!("network     {line}")), "{text}");
    }
    let object = brig.run(["session", "inspect", "s", "--json"]).json();
    let layers = object["network"]["layers"].as_array().unwrap();
    let of = |kind: &str| {
        layers
            .iter()
            .find(|layer| layer["kind"] == kind)
            .unwrap()
            .clone()
    };
    assert_eq!(of("session")["allow"], json!(["one.example"]));
    assert_eq!(of("user")["deny"], json!(["three.example"]));
}

#[test]
fn files_that_are_written_again_as_they_were_leave_a_session_usable() {
    let brig = Brig::new();
    create(&brig, "s");
    let write = |text: &str| {
        let code =
            format!("open('a', 'w').write('{text}'); import os; os.makedirs('d', exist_ok=True)");
        brig.run(["session", "exec", "s", "-c", &code]).exits(0);
    };
    // Each becomes a layer when the next begins.
    for text in ["1", "1", "1", "2", "1", "2", "2"] {
        write(text);
    }
    brig.run(["session", "checkpoint", "s", "two"]).exits(0);
    write("1");
    brig.run(["session", "exec", "s", "--", "cat", "a"])
        .exits(0)
        .prints("1");
    brig.run(["session", "restore", "s", "two"]).exits(0);
    brig.run(["session", "exec", "s", "--", "cat", "a"])
        .exits(0)
        .prints("2");
    // What was removed stays removed.
    brig.run(["session", "exec", "s", "--", "rm", "a"]).exits(0);
    write("2");
    brig.run(["session", "exec", "s", "--", "rm", "a"]).exits(0);
    brig.run(["session", "exec", "s", "--", "ls"])
        .exits(0)
        .prints("d\n");
}

#[test]
fn a_failure_names_the_sessions_that_were_destroyed_before_it() {
    let brig = Brig::new();
    brig.run(["session", "create", "first"]).exits(0);
    for agent in ["x", "y"] {
        brig.run(["session", "create", "twice", "--agent", agent])
            .exits(0);
    }
    let done = brig
        .run(["session", "destroy", "first", "twice", "--json"])
        .exits(125);
    let error = &done.json()["error"];
    assert_eq!(error["code"], "operation.incomplete");
    assert_eq!(error["destroyed"][0]["session_id"], "first");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("1 session destroyed, but then: more than one agent"),
        "{message}"
    );
    // Control: nothing was destroyed before.
    let done = brig
        .run(["session", "destroy", "twice", "--json"])
        .exits(125);
    assert_eq!(done.json()["error"]["code"], "session.ambiguous");
}
