//! Signals reach the program first.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Brig, digits, is_running};

/// Returns once the program has printed `up`.
fn started(brig: &Brig, words: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = brig
        .command(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    (child, out)
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// The exit code, the rest of stdout, and stderr.
fn ended(mut child: Child, mut out: BufReader<ChildStdout>) -> (Option<i32>, String, String) {
    let (mut rest, mut said) = (String::new(), String::new());
    out.read_to_string(&mut rest).unwrap();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), rest, said)
}

const PYTHON: &str = "import sys, time\n\
    try: print('up', flush=True); time.sleep(60)\n\
    except KeyboardInterrupt: print('interrupted', flush=True); sys.exit(9)\n\
    finally: print('finally', flush=True)\n";

#[test]
fn python_gets_a_keyboard_interrupt_and_its_finally_runs() {
    let brig = Brig::new();
    let (child, out) = started(&brig, &["run", "-c", PYTHON]);
    signal(&child, "INT");
    let (code, rest, said) = ended(child, out);
    assert_eq!((code, rest.as_str()), (Some(9), "interrupted\nfinally\n"));
    assert_eq!(said, "");
}

#[test]
fn a_session_passes_signals_on_too() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    let script = "trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let (child, out) = started(&brig, &["session", "exec", "s", "--", "bash", "-c", script]);
    signal(&child, "TERM");
    let (code, rest, _) = ended(child, out);
    assert_eq!((code, rest.as_str()), (Some(3), "caught\n"));
}

#[test]
fn what_the_program_started_gets_it_as_from_a_terminal() {
    let brig = Brig::new();
    let seconds = format!("61.{}", digits());
    let script = format!("echo up; sleep {seconds}; echo after");
    let (child, out) = started(&brig, &["run", "--", "bash", "-c", &script]);
    let sleeping = format!("sleep\0{seconds}");
    while !is_running(&sleeping) {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "INT");
    let (code, rest, _) = ended(child, out);
    assert_eq!((code, rest.as_str()), (Some(130), ""));
    assert!(!is_running(&sleeping));
}

const DEAF: &str = "trap '' INT TERM; echo up; while :; do sleep 0.1; done";

#[test]
fn a_program_that_ignores_it_is_ended_after_the_grace_period() {
    let brig = Brig::new();
    let (child, out) = started(&brig, &["run", "--", "bash", "-c", DEAF]);
    let begun = Instant::now();
    signal(&child, "TERM");
    let (code, _, said) = ended(child, out);
    assert_eq!(code, Some(143));
    assert!(said.contains("cancelled"), "{said}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let brig = Brig::new();
    let (child, out) = started(
        &brig,
        &["run", "--timeout", "10m", "--", "bash", "-c", DEAF],
    );
    signal(&child, "INT");
    // Two signals that are sent together would be one.
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "INT");
    let (code, _, said) = ended(child, out);
    assert_eq!(code, Some(130));
    assert!(said.contains("cancelled"), "{said}");
}

#[test]
fn with_json_it_is_ended_too_and_reported() {
    let brig = Brig::new();
    let word = format!("61.{}", digits());
    let child = brig
        .command(["run", "--json", "--", "sleep", &word])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !is_running(&format!("sleep\0{word}")) {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["result"]["exit_code"], 143);
}

#[test]
fn a_terminal_is_refused_where_there_is_none() {
    let brig = Brig::new();
    brig.run_with_input(["run", "-it", "--", "cat"], b"text")
        .exits(125)
        .prints("")
        .complains("error: standard input is not a terminal")
        .complains("hint: leave out -t");
    brig.run(["session", "create", "s"]).exits(0);
    brig.run_with_input(["session", "exec", "-it", "s", "--", "cat"], b"text")
        .exits(125)
        .complains("not a terminal");
    // The controls: each of them alone.
    brig.run_with_input(["run", "-i", "--", "cat"], b"text")
        .exits(0)
        .prints("text");
    brig.run(["run", "-t", "--", "sh", "-c", "test -t 1"])
        .exits(0);
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let brig = Brig::new();
    // Python ignores SIGPIPE, and `yes` does not.
    let forever = "while True: print('up', flush=True)";
    for words in [
        &["run", "-c", forever][..],
        &["run", "--", "yes", "up"],
        &["run", "--", "sh", "-c", "yes up"],
    ] {
        let (child, out) = started(&brig, words);
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    }
    // The control: a reader that stays gets all of it.
    brig.run(["run", "-c", "print('up')"])
        .exits(0)
        .prints("up\n");
}

/// The guest has the deadline too.
#[test]
fn a_stopped_brig_does_not_stop_the_clock() {
    let brig = Brig::new();
    let mark = digits();
    let script = format!("echo up; exec sleep 600.{mark}");
    let words = ["run", "--timeout", "3s", "--", "sh", "-c", &script];
    let (child, out) = started(&brig, &words);
    assert!(is_running(&format!("600.{mark}")), "control: it runs");
    signal(&child, "STOP");
    let sleeper = format!("600.{mark}");
    let begun = Instant::now();
    while is_running(&sleeper) {
        assert!(begun.elapsed() < Duration::from_secs(120), "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    signal(&child, "CONT");
    let (code, _, said) = ended(child, out);
    assert_eq!(code, Some(124), "{said}");
    assert!(said.contains("ran longer than 3s"), "{said}");
}
