//! Exit codes, and the line on stderr that explains them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Brig, Done};

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
    // Before the program ends by itself.
    assert!(started.elapsed() < Duration::from_secs(60));
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
fn a_stream_is_never_cut_and_a_result_says_so() {
    let brig = Brig::new();
    let write = "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2";
    brig.run(["session", "create", "s"]).exits(0);
    for command in [
        ["run", "--output-max=4K"].as_slice(),
        &["session", "exec", "s"],
    ] {
        let words = [command, &["--", "sh", "-c", write]].concat();
        let done = brig.run(words).exits(0);
        let lengths = (done.0.stdout.len(), done.0.stderr.len());
        assert_eq!(lengths, (3_000_000, 2_000_000), "{command:?}");

        let words = [command, &["--json", "--", "sh", "-c", write]].concat();
        let object = brig.run(words).exits(0).json();
        let result = &object["result"];
        assert_eq!(result["stdout_bytes"], 3_000_000);
        assert_eq!(result["truncated"]["stdout"], true);
        assert!(result["stdout"].as_str().unwrap().len() <= 1 << 20);
    }
    // With an end at the limit, both are.
    let kill = [
        "run",
        "--output-max=4K",
        "--output-overflow=kill",
        "--",
        "sh",
        "-c",
        write,
    ];
    assert_eq!(brig.run(kill).exits(137).0.stdout.len(), 4096);
}

#[test]
fn a_folder_passes_through_a_pipe() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    let make = "mkdir out; head -c 5000000 /dev/urandom > out/a; sha256sum out/a";
    let made = brig
        .run(["session", "exec", "s", "--", "sh", "-c", make])
        .exits(0);
    let packed = brig
        .run(["session", "exec", "s", "--", "tar", "c", "out"])
        .exits(0);
    let mut unpack = std::process::Command::new("tar");
    unpack
        .arg("x")
        .current_dir(brig.home())
        .stdin(Stdio::piped());
    let mut unpack = unpack.spawn().unwrap();
    std::io::Write::write_all(&mut unpack.stdin.take().unwrap(), &packed.0.stdout).unwrap();
    assert!(unpack.wait().unwrap().success());
    let sum = std::process::Command::new("sha256sum")
        .arg("out/a")
        .current_dir(brig.home())
        .output();
    assert_eq!(sum.unwrap().stdout, made.0.stdout);
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let brig = Brig::new();
    let full = || {
        Stdio::from(
            std::fs::File::options()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    for words in [
        ["run", "--", "echo", "something"].as_slice(),
        &["run", "--json", "--", "true"],
        &["session", "ls", "--json"],
        &["version"],
        &["--help"],
        &["help", "run"],
        &["completions", "bash"],
        &["config", "show"],
        &["audit", "show"],
        &["audit", "show", "--json", "--last", "1"],
        &["audit", "export", "--format", "csv"],
        &["audit", "verify"],
        &["prune", "--json"],
    ] {
        let done = Done(
            brig.command(words)
                .stdout(full())
                .stderr(Stdio::piped())
                .output()
                .unwrap(),
        );
        done.exits(125)
            .complains("cannot write to stdout: no space left on device");
    }
    let complain = ["run", "--", "sh", "-c", "echo something >&2"];
    let done = Done(
        brig.command(complain)
            .stderr(full())
            .stdout(Stdio::piped())
            .output()
            .unwrap(),
    );
    done.exits(125);
    brig.run(complain).exits(0).complains("something");
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
        .complains("this build has: native");
    brig.run(["run", "--backend", "x", "-c", "1"])
        .exits(125)
        .complains("unknown backend");
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
    let seconds = sleeping_time();
    let mut child = sleeper(&brig, &seconds);
    assert!(sleeps(&seconds));
    signal(&child, "INT");
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Before the program ends by itself.
    assert!(started.elapsed() < Duration::from_secs(60));
    assert!(!sleeps(&seconds));

    let mut child = sleeper(&brig, &seconds);
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_second_ctrl_c_waits_for_nothing() {
    let brig = Brig::new();
    let word = format!("unread{}", crate::common::digits());
    // Nobody reads, so that after the first one there is still output to deliver.
    let mut child = brig
        .command(["run", "--timeout", "10m", "--", "yes", &word])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !crate::common::is_running(&format!("yes\0{word}")) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    let started = Instant::now();
    while crate::common::is_running(&format!("yes\0{word}")) {
        assert!(started.elapsed() < Duration::from_secs(120));
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

fn sleeping_time() -> String {
    format!("61.{}", crate::common::digits())
}

fn sleeps(seconds: &str) -> bool {
    crate::common::is_running(&format!("sleep\0{seconds}"))
}

/// Returns once the program inside runs.
fn sleeper(brig: &Brig, seconds: &str) -> Child {
    let script = format!("echo up; exec sleep {seconds}");
    let mut child = brig
        .command(["run", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    while !sleeps(seconds) {
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
