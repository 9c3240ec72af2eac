//! Very many attempts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::listed::{run, stdout, under};
use brig_audit::{Command, Event as Fact, Log, Options, Record};
use brig_sandbox::{Limit, Report, SessionConfig};

/// Attempts with records of their own, and totals of those that are alike.
fn commands_in(folder: &Path) -> (Vec<Command>, Vec<Command>) {
    let (mut kept, mut totals) = (Vec::new(), Vec::new());
    let mut cursor = brig_audit::log::Cursor::new(folder);
    cursor
        .read(|line| {
            let record: Record = serde_json::from_str(line.record).unwrap();
            match record.event {
                Fact::CommandAttempted(command) => kept.push(command),
                Fact::CommandTotal(command) => totals.push(command),
                _ => {}
            }
            true
        })
        .unwrap();
    (kept, totals)
}

fn count(rows: &[Command]) -> u64 {
    let times = rows.iter().map(|row| row.times.unwrap().count);
    times.sum()
}

/// Time for thousands of attempts on a slow machine.
fn long(policy: &str) -> SessionConfig {
    let mut config = under(policy);
    config.limits.timeout = Limit::asked(Duration::from_secs(600));
    config
}

/// What is on record after code has run under a policy.
async fn recorded(policy: &str, code: &str) -> (Report, Vec<Command>, Vec<Command>) {
    let folder = tempfile::tempdir().unwrap();
    let log = Arc::new(Log::open(folder.path(), Options::default()).unwrap());
    let report = run(log, long(policy), code).await;
    let (kept, totals) = commands_in(folder.path());
    (report, kept, totals)
}

/// Of many attempts that are alike, one in each second has a record of its own.
fn seconds(report: &Report) -> u64 {
    report.outcome.duration.as_secs()
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Alike, and each for another program.
#[tokio::test]
async fn ten_thousand_attempts_lose_neither_the_first_nor_the_count_nor_memory() {
    brig_testing::alone!();
    const ATTEMPTS: u64 = 10_000;
    for path in ["b'/opt/az'", "b'/opt/%d/az' % n"] {
        let code = format!(
            "import ctypes\nlibc = ctypes.CDLL(None)\nfor n in range({ATTEMPTS}):\n\
             \x20   argv = (ctypes.c_char_p * 3)(b'az', b'%d' % n, None)\n\
             \x20   libc.execve({path}, argv, None)\nprint('done')\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::open(folder.path(), Options::default()).unwrap());
        let before = resident_bytes();
        let report = run(log, long("command_denylist: [az]\n"), &code).await;
        let grown = resident_bytes().saturating_sub(before);
        assert_eq!(stdout(&report), "done\n");
        assert!(grown < 64 << 20, "{grown} bytes");
        // And the interpreter itself.
        let listed = count(&report.attempted.commands);
        assert_eq!(listed + report.attempted.omitted.commands, ATTEMPTS + 1);

        let (mut kept, totals) = commands_in(folder.path());
        kept.retain(|one| !one.allowed);
        assert_eq!(kept[0].arguments, ["az", "0"], "the first");
        // Those after the sixteenth share a row, and some of them have records of their own.
        let apart = kept.iter().filter(|one| {
            let number: u64 = one.arguments[1].parse().unwrap();
            number < 16
        });
        assert_eq!(apart.count() as u64 + count(&totals), ATTEMPTS);
        let most = 1000 + seconds(&report);
        assert!((kept.len() as u64) < most, "{} of {most}", kept.len());
    }
}

#[tokio::test]
async fn attempts_that_fail_do_not_hide_a_start() {
    let code = "import ctypes, os\nlibc = ctypes.CDLL(None)\n\
                argv = (ctypes.c_char_p * 2)(b'env', None)\n\
                for n in range(25): libc.execve(b'/usr/bin/env', argv, ctypes.c_void_p(1))\n\
                os.posix_spawn('/usr/bin/env', ['env'], {})\nos.wait()\n";
    let (report, kept, totals) = recorded("command_denylist: [az]\n", code).await;
    let of = |rows: &[Command], code: &str| -> Vec<Command> {
        let rows = rows.iter();
        let rows = rows.filter(|one| one.program == "/usr/bin/env" && one.code == code);
        rows.cloned().collect()
    };
    assert_eq!(count(&of(&totals, "command.failed")), 25, "the control");
    assert_eq!(of(&kept, "command.allowed").len(), 1, "{kept:#?}");
    let listed = of(&report.attempted.commands, "command.allowed");
    assert_eq!(count(&listed), 1);
}

#[tokio::test]
async fn what_no_rule_covers_does_not_hide_what_is_observed() {
    let code = "import os\ndef start(*words):\n    os.posix_spawn('/usr/bin/env', ['env', *words], {})\n    os.wait()\n\
                for n in range(30): start('--version')\nstart('push', 'evil')\n";
    let (report, kept, totals) = recorded("command_denylist: [env push]\n", code).await;
    let version = |one: &&Command| one.arguments.iter().any(|word| word == "--version");
    let many: Vec<Command> = totals.iter().filter(version).cloned().collect();
    assert_eq!(count(&many), 30, "the control: {totals:#?}");
    for rows in [&kept, &report.attempted.commands] {
        let found = rows.iter().find(|one| one.code == "command.observed");
        assert_eq!(found.unwrap().arguments, ["env", "push", "evil"]);
    }
}

#[tokio::test]
async fn no_number_of_names_hides_another_program() {
    let code = "import os\ndef refused(path, *words):\n\
                \x20   try: os.execve(path, words, {})\n    except OSError: pass\n\
                for n in range(1100): refused('/tmp/n%d/tool' % n, 'tool', str(n))\n\
                if os.fork() == 0:\n    refused('/usr/bin/curl', 'curl', 'https://192.0.2.1/')\n    os._exit(1)\n\
                os.wait()\n\
                for n in range(1010):\n    os.symlink('/usr/bin/true', '/tmp/l%d' % n)\n\
                \x20   os.posix_spawn('/tmp/l%d' % n, ['x'], {})\n    os.wait()\n\
                os.posix_spawn('/usr/bin/env', ['env', '--version'], {})\nos.wait()\n";
    let (report, kept, totals) = recorded("command_denylist: [tool, curl]\n", code).await;
    assert!(
        !totals.is_empty(),
        "the control: not each has a record of its own"
    );
    for program in ["/usr/bin/curl", "/usr/bin/env"] {
        assert!(kept.iter().any(|one| one.program == program), "{program}");
    }
    let listed = &report.attempted.commands;
    let curl = listed.iter().find(|one| one.program == "/usr/bin/curl");
    assert_eq!(curl.unwrap().rule.as_deref(), Some("curl"));
    let all = count(listed) + report.attempted.omitted.commands;
    assert_eq!(all, 1100 + 1 + 1010 + 1 + 1);
}

/// Paths of one name that is missing, with the same arguments: each search is bounded, and so is the log.
#[tokio::test]
async fn many_paths_of_one_name_take_little_of_the_log() {
    let code = "import os\nfor n in range(6000):\n\
                \x20   try: os.execve('/tmp/n%d/tool' % n, ['tool'], {})\n    except OSError: pass\n";
    let (report, kept, totals) = recorded("command_denylist: [tool]\n", code).await;
    let denied = kept.iter().filter(|one| !one.allowed).count() as u64;
    let most = 64 + seconds(&report);
    assert!((1..most).contains(&denied), "{denied} of {most}");
    let shared = totals
        .iter()
        .filter(|one| one.program == "tool" && one.detail.is_some());
    assert_eq!(shared.count(), 1, "{totals:#?}");
}
