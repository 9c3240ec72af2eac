//! `brig run`: what goes in, what comes out.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::Brig;

/// Also where nothing else is counted, as in a host directory.
#[test]
fn a_file_that_is_too_large_is_explained() {
    let brig = Brig::new();
    std::fs::create_dir(brig.home().join("project")).unwrap();
    let run = |flags: &[&str]| {
        let words = ["run", "-w", "project"].iter().chain(flags);
        let command = ["--", "python3", "-c"];
        let code = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n\
                    open('big', 'w').truncate(300 << 20)";
        brig.run(words.chain(&command).chain(&[code]))
    };
    run(&[]).exits(153).complains(
        "larger than the disk limit of 256M; raise the limit with --disk and --waive disk",
    );
    // What the hint says is enough.
    run(&["--disk", "1G", "--waive", "disk"])
        .exits(0)
        .stays_silent();
    let small = [
        "run",
        "--disk",
        "8M",
        "--",
        "sh",
        "-c",
        "truncate -s 9M big",
    ];
    let done = brig.run(small).exits(153);
    assert!(!done.stderr().contains("--waive"), "{done:?}");
}

#[test]
fn code_a_script_and_a_command_run() {
    let brig = Brig::new();
    brig.run(["run", "-c", "print(6 * 7)"])
        .exits(0)
        .prints("42\n")
        .stays_silent();
    brig.write("hello.py", "import sys; print(sys.argv[1:])");
    brig.run(["run", "hello.py", "-x", "--json", "--", "b"])
        .exits(0)
        .prints("['-x', '--json', '--', 'b']\n");
    brig.run(["run", "--", "echo", "a b", "-n"])
        .exits(0)
        .prints("a b -n\n");
    brig.run(["run", "-c", "import sys; print(sys.argv[1:])", "--", "-b"])
        .prints("['-b']\n");
}

#[test]
fn nothing_is_added_to_code_where_no_commands_are_watched() {
    let brig = Brig::new();
    let code = "print('addaudithook' in open('/proc/self/cmdline').read())";
    brig.run(["run", "-c", code]).exits(0).prints("False\n");
    brig.run(["run", "--observe", "-c", code])
        .exits(0)
        .prints("True\n");
}

#[test]
fn the_language_is_guessed_or_given() {
    let brig = Brig::new();
    brig.write("a.sh", "echo ${BASH_VERSION:+bash} $1");
    brig.run(["run", "a.sh", "x"]).exits(0).prints("bash x\n");
    brig.write("b", "#!/usr/bin/env python3\nprint('py')");
    brig.run(["run", "b"]).exits(0).prints("py\n");
    brig.write("c.txt", "print('py')");
    brig.run(["run", "c.txt"]).exits(125).complains("--lang");
    brig.run(["run", "--lang", "python", "c.txt"])
        .exits(0)
        .prints("py\n");
    brig.run(["run", "--lang", "bash", "-c", "echo $0 $((1+1))"])
        .exits(0);
}

#[test]
fn standard_input_is_the_script_or_its_input() {
    let brig = Brig::new();
    brig.run_with_input(["run", "-"], b"print('from stdin')")
        .exits(0)
        .prints("from stdin\n");
    brig.run_with_input(["run", "--lang", "bash", "-", "a"], b"echo $1")
        .exits(0)
        .prints("a\n");
    brig.run_with_input(["run", "-i", "--", "cat"], b"a\0b\xff\n")
        .exits(0);
    let big = vec![b'x'; 600_000];
    let done = brig
        .run_with_input(["run", "-i", "--", "wc", "-c"], &big)
        .exits(0);
    assert_eq!(done.stdout().trim(), "600000");
    // Without -i nothing of it is read.
    brig.run_with_input(["run", "--", "cat"], b"secret")
        .exits(0)
        .prints("");
    brig.run_with_input(["run", "-i", "-"], b"")
        .exits(125)
        .complains("both");
}

#[test]
fn output_arrives_before_the_end() {
    let brig = Brig::new();
    let mut child = brig
        .command([
            "run",
            "--timeout",
            "10m",
            "--",
            "bash",
            "-c",
            "echo first; echo problem >&2; sleep 500",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "first\n");
    line.clear();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "problem\n");
    assert!(started.elapsed() < Duration::from_secs(300));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn bytes_pass_unchanged_into_a_pipe() {
    let brig = Brig::new();
    let code = "import sys; sys.stdout.buffer.write(bytes(range(256)))";
    let done = brig.run(["run", "-c", code]).exits(0);
    assert_eq!(done.0.stdout, (0..=255).collect::<Vec<u8>>());
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let brig = Brig::new();
    let mut child = brig
        .command(["run", "--", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{output:?}");
}

#[test]
fn a_reader_that_does_not_read_does_not_stop_the_timeout() {
    let brig = Brig::new();
    let word = format!("on and on {}", crate::common::digits());
    // Long enough to be seen before it is over.
    let (begins, ends) = (Duration::from_secs(60), Duration::from_secs(120));
    let started = Instant::now();
    let mut child = brig
        .command([
            "run",
            "--timeout",
            "10s",
            "--output-max",
            "64M",
            "--",
            "yes",
            &word,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The complaint about the timeout comes only after the output, so look at the processes.
    while !crate::common::is_running(&word) {
        assert!(started.elapsed() < begins, "it never ran");
    }
    while crate::common::is_running(&word) {
        assert!(started.elapsed() < ends, "it outlived its timeout");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124));
}

#[test]
fn variables_mounts_and_folders_reach_the_inside() {
    let brig = Brig::new();
    brig.run(["run", "-e", "A=b=c", "--", "sh", "-c", "echo $A"])
        .exits(0)
        .prints("b=c\n");
    std::fs::create_dir(brig.home().join("data")).unwrap();
    brig.write("data/a.txt", "from the host");
    brig.run(["run", "--mount", "data:/data", "--", "cat", "/data/a.txt"])
        .exits(0)
        .prints("from the host");
    let write = ["sh", "-c", "echo changed > /data/a.txt"];
    let done = brig.run(["run", "--mount", "data:/data", "--"].iter().chain(&write));
    assert_ne!(
        done.0.status.code(),
        Some(0),
        "a mount is read-only unless asked"
    );
    brig.run([
        "run",
        "--workspace",
        "data",
        "--",
        "sh",
        "-c",
        "echo new > b.txt",
    ])
    .exits(0);
    assert_eq!(
        std::fs::read_to_string(brig.home().join("data/b.txt")).unwrap(),
        "new\n"
    );
    brig.run(["run", "--cwd", "/tmp", "--", "pwd"])
        .exits(0)
        .prints("/tmp\n");
}

#[test]
fn the_caller_s_environment_stays_outside() {
    let brig = Brig::new();
    let output = brig
        .command(["run", "--", "env"])
        .env("SECRET_OF_THE_TEST", "hunter2")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stdout).contains("hunter2"));
    // The control: the same variable is there when it is given.
    let done = brig.run(["run", "-e", "SECRET_OF_THE_TEST=hunter2", "--", "env"]);
    assert!(done.stdout().contains("SECRET_OF_THE_TEST=hunter2"));
}

#[test]
fn a_run_leaves_nothing_but_its_evidence() {
    let brig = Brig::new();
    brig.run(["run", "--", "true"]).exits(0);
    let left: Vec<_> = std::fs::read_dir(brig.home().join("state/brig"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["audit"]);
}

#[test]
fn the_root_is_read_only_unless_asked_and_never_kept() {
    let brig = Brig::new();
    let touch = ["--", "touch", "/usr/brig-test", "/brig-test"];
    let done = brig.run(["run"].iter().chain(&touch)).exits(1);
    done.complains("Read-only file system");
    brig.run(["run", "--writable-root"].iter().chain(&touch))
        .exits(0);
    assert!(!std::path::Path::new("/usr/brig-test").exists());
    assert!(!std::path::Path::new("/brig-test").exists());
}

#[test]
fn the_caller_sets_how_much_is_said() {
    let brig = Brig::new();
    let said = |flags: &[&str], log: Option<&str>| {
        let words = [
            &["run", "--allow", "a.example.com"],
            flags,
            &["-c", "print(1)"],
        ]
        .concat();
        let mut command = brig.command(words);
        command.env_remove("BRIG_LOG");
        if let Some(level) = log {
            command.env("BRIG_LOG", level);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), stderr)
    };
    let summary = "network: --allow allows 1 host: a.example.com\n";
    assert_eq!(said(&[], None), (Some(0), summary.into()));
    assert_eq!(said(&["-q"], None), (Some(0), String::new()));
    for level in ["error", "warn"] {
        assert_eq!(said(&[], Some(level)), (Some(0), String::new()));
    }
    for (flags, level) in [(&["--verbose"][..], Some("error")), (&[], Some("debug"))] {
        let (_, text) = said(flags, level);
        for part in [summary, "backend native", "memory: ", "started execution"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    let (code, text) = said(&[], Some("loud"));
    assert_eq!(code, Some(125));
    assert!(text.contains("use error, warn, info or debug"), "{text}");
    // Errors are always shown.
    brig.run(["run", "-q", "no-such-file"])
        .exits(125)
        .complains("error: file `no-such-file`");
}
