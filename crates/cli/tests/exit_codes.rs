//! Exit codes, and the line on stderr that explains them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Brig;

#[test]
fn the_program_s_own_exit_code_is_ours() {
    let brig = Brig::new();
    for code in [0, 1, 2, 42, 124, 125, 255] {
        brig.run(["run", "--", "sh", "-c", &format!("exit {code}")])
            .exits(code)
            .stays_silent();
    }
    brig.run(["run", "--", "sh", "-c", "kill -SEGV $$"])
        .exits(139);
    brig.run(["run", "-c", "raise SystemExit(3)"]).exits(3);
}

#[test]
fn what_cannot_be_run_is_126_or_127() {
    let brig = Brig::new();
    brig.run(["run", "--", "no-such-program"])
        .exits(127)
        .complains("no-such-program");
    brig.run(["run", "--", "/etc/hostname"]).exits(126);
}

#[test]
fn a_timeout_is_124() {
    let brig = Brig::new();
    let started = Instant::now();
    brig.run(["run", "--timeout", "300ms", "--", "sleep", "60"])
        .exits(124)
        .complains("killed: ran longer than 300ms; raise the limit with --timeout");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_limit_is_137() {
    let brig = Brig::new();
    brig.run([
        "run",
        "--output-max",
        "1K",
        "--output-overflow",
        "kill",
        "--",
        "yes",
    ])
    .exits(137)
    .complains("wrote more than 1K of output; raise the limit with --output-max");
    // Several processes, none of them too large alone, so that it holds without control groups.
    let code = "import os, time\nos.fork(); os.fork()\na = b'x' * (180 << 20)\ntime.sleep(20)";
    brig.run(["run", "-c", code])
        .exits(137)
        .complains("killed: used more than 512M of memory; raise the limit with --memory");
}

#[test]
fn a_cut_stream_is_noted() {
    let brig = Brig::new();
    let done = brig
        .run([
            "run",
            "--output-max",
            "4K",
            "--",
            "head",
            "-c",
            "10000",
            "/dev/zero",
        ])
        .exits(0)
        .complains("note: stdout was cut after 4K of 9.8K; keep more with --output-max");
    assert_eq!(done.0.stdout.len(), 4096);
}

#[test]
fn brig_s_own_failures_are_125() {
    let brig = Brig::new();
    brig.run(["run"]).exits(125).complains("hint: give -c CODE");
    brig.run(["run", "--no-such-flag", "-c", "1"])
        .exits(125)
        .complains("--no-such-flag");
    brig.run(["run", "--memory", "lots", "-c", "1"])
        .exits(125)
        .complains("--memory");
    brig.run(["run", "no-such-file.py"])
        .exits(125)
        .complains("no-such-file.py");
    brig.run(["run", "--backend", "microvm", "-c", "1"])
        .exits(125)
        .complains("not part of");
    brig.run(["run", "--backend", "x", "-c", "1"])
        .exits(125)
        .complains("no backend");
    brig.run(["run", "--agent", "a b", "-c", "1"])
        .exits(125)
        .complains("agent");
    brig.run(["run", "--waive", "gravity", "-c", "1"])
        .exits(125)
        .complains("possible values: cpu");
    brig.run(["run", "--mount", "/etc/ssh:/x", "-c", "1"])
        .exits(125)
        .complains("refused");
    brig.run(["session", "exec", "nobody", "--", "true"])
        .exits(125)
        .complains("no session");
    brig.run(["frobnicate"]).exits(125);
}

#[test]
fn one_ctrl_c_cancels() {
    let brig = Brig::new();
    let mut child = sleeper(&brig);
    assert!(common::is_running("sleep\x0061.25"));
    signal(&child, "INT");
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!common::is_running("sleep\x0061.25"));

    let mut child = sleeper(&brig);
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_second_ctrl_c_waits_for_nothing() {
    let brig = Brig::new();
    // Nobody reads, so that after the first one there is still output to deliver.
    let mut child = brig
        .command(["run", "--", "yes", "unread"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !common::is_running("yes\0unread") {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    let started = Instant::now();
    while common::is_running("yes\0unread") {
        assert!(started.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        child.try_wait().unwrap().is_none(),
        "output is still to be delivered"
    );
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Returns once the program inside runs.
fn sleeper(brig: &Brig) -> Child {
    let mut child = brig
        .command(["run", "--", "sh", "-c", "echo up; exec sleep 61.25"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    while !common::is_running("sleep\x0061.25") {
        std::thread::yield_now();
    }
    child
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
