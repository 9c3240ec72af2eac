//! What a caller may have done to its own process before it started Brig.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::{Brig, Done};

/// Runs a line of shell in which `$BRIG` is Brig.
fn shell(brig: &Brig, line: &str) -> Done {
    let own = brig.command(["version"]);
    let mut command = Command::new("bash");
    command.args(["-c", line]).env("BRIG", own.get_program());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(brig.home()).stdin(Stdio::null());
    Done(command.output().unwrap())
}

#[test]
fn files_that_may_not_grow_are_an_error_and_no_end() {
    let brig = Brig::new();
    for first in ["never", "before"] {
        let done = shell(&brig, "ulimit -f 0; exec \"$BRIG\" run -- echo ran");
        assert_eq!(done.stdout(), "", "{first}: nothing runs without a record");
        done.exits(125).complains("error: ");
        shell(&brig, "ulimit -f 0; exec \"$BRIG\" sandbox allow a.example")
            .exits(125)
            .complains("error: ");
        // The same once there is a log.
        brig.run(["run", "--", "echo", "ran"])
            .exits(0)
            .prints("ran\n");
    }
    // Its own stdout may be such a file.
    let line = "ulimit -f 8000; exec \"$BRIG\" run -- head -c 20000000 /dev/zero > out";
    shell(&brig, line)
        .exits(125)
        .complains("cannot write to stdout: file too large");
    // Inside, the limit of the disk holds, and its signal ends programs as ever.
    let line = "\"$BRIG\" run --disk 1M -- sh -c 'head -c 9000000 /dev/zero > f; echo $?'";
    let code = shell(&brig, line).exits(0).stdout();
    assert_ne!(code, "0\n");
}

#[test]
fn what_callers_ignore_block_or_close_makes_no_difference() {
    let brig = Brig::new();
    for before in [
        "trap '' CHLD PIPE XFSZ INT QUIT",
        "exec 0<&-",
        "exec 2>&-",
        "umask 0777",
        "umask 0",
        "ulimit -c unlimited",
        "ulimit -c 0",
        "ulimit -i 64",
        "ulimit -q 0",
        "ulimit -n 64",
        "mkdir gone && cd gone && rmdir ../gone",
    ] {
        let line = format!(
            "{before}; exec \"$BRIG\" run -- sh -c 'yes | head -n 1; umask; grep SigIgn /proc/self/status'"
        );
        let done = shell(&brig, &line).exits(0);
        let said = done.stdout();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "y", "{before}: {done:?}");
        assert_eq!(lines[2], "SigIgn:\t0000000000000000", "{before}: {done:?}");
    }
    // Nobody is there to read it.
    shell(&brig, "exec 1>&-; exec \"$BRIG\" run -- echo unread")
        .exits(0)
        .prints("");
    brig.run(["audit", "verify"]).exits(0);
}

#[test]
fn a_lower_limit_of_the_caller_holds_inside() {
    let brig = Brig::new();
    let cores = |before: &str| {
        let line =
            format!("{before}; exec \"$BRIG\" run -- grep 'core file size' /proc/self/limits");
        let done = shell(&brig, &line).exits(0);
        done.stdout().split_whitespace().nth(5).map(str::to_owned)
    };
    assert_eq!(cores("ulimit -c 0").as_deref(), Some("0"));
    // One byte: no core file, and no crash for a program of the host's that takes them.
    let usual = Command::new("sh")
        .args(["-c", "ulimit -Hc"])
        .output()
        .unwrap();
    if usual.stdout != b"0\n" {
        assert_eq!(cores("true").as_deref(), Some("1"));
    }
}

#[test]
fn an_object_takes_no_more_memory_than_what_is_kept() {
    const KEPT: u64 = 24 << 20;
    let brig = Brig::new();
    let kept = KEPT.to_string();
    let mut child = brig
        .command([
            "run",
            "--json",
            "--output-max=64M",
            "--",
            "head",
            "-c",
            &kept,
            "/dev/zero",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // While the object is being written: nobody reads more of it meanwhile.
    let mut begun = [0];
    stdout.read_exact(&mut begun).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let mut rest = 1;
    let mut piece = vec![0; 1 << 20];
    loop {
        match stdout.read(&mut piece).unwrap() {
            0 => break,
            count => rest += count as u64,
        }
    }
    assert!(child.wait().unwrap().success());
    assert!(rest > 6 * KEPT, "every NUL takes six bytes: {rest}");
    // With what Brig takes by itself. As one text it would be ten times as much.
    assert!(peak * 1024 < KEPT + (64 << 20), "{peak} KiB");
}
