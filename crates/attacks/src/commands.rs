//! Commands that must not be run (attacks 31 to 37).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_audit::{Command, Event as Fact, Verdict};
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{Control, Report, Request, SessionConfig};
use serde_json::{Value, json};

use crate::fence::Fence;
use crate::target::{AttackTarget, agent, attempts};
use crate::{host, probe};

#[macro_export]
macro_rules! commands {
    ($target:path) => {
        $crate::attacks!($target, commands:
            every_way_to_a_denied_program_ends_before_it,
            the_example_of_the_first_report_is_denied_and_recorded,
            what_is_not_installed_is_denied_and_recorded,
            nothing_of_a_denied_file_can_be_had,
            an_allowlist_leaves_nothing_else,
            what_is_only_observed_runs_and_is_recorded,
            an_allowed_interpreter_gets_no_network_by_it,
            a_forged_record_changes_nothing,
            a_flood_of_attempts_is_counted,
            nobody_answers_in_place_of_who_is_asked,
            a_denied_file_that_is_made_later_does_not_start,
            what_is_on_record_is_what_the_kernel_did,
        );
    };
}

/// A program that every machine has, that does no harm, and whose output cannot be mistaken.
const PROGRAM: &str = "factor";

pub(crate) fn under(policy: &str) -> SessionConfig {
    let text = format!("name: commands\ndefaults: {{action: allow}}\n{policy}");
    let loaded = Document::load("commands.yaml", text, Compat::Strict).unwrap();
    let policies = PolicySet::new(vec![loaded.document]);
    SessionConfig::default().under(Arc::new(policies)).unwrap()
}

pub(crate) fn python(code: &str) -> Request {
    Request::code(brig_sandbox::Language::Python, code.as_bytes().to_vec())
}

/// Where the loader of this machine's programs is.
pub(crate) fn loader() -> PathBuf {
    let folders = ["/lib64", "/lib", "/usr/lib"];
    let mut entries = folders
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with("ld-linux"));
    found.unwrap().path()
}

fn arguments(folder: Option<&Path>) -> Value {
    let busybox = Path::new("/usr/bin/busybox");
    json!({
        "program": PROGRAM,
        "path": fs::canonicalize(format!("/usr/bin/{PROGRAM}")).unwrap(),
        "loader": loader(),
        "folder": folder,
        "inside": folder.is_none(),
        "busybox": busybox.exists().then_some(busybox),
    })
}

fn denied(report: &Report) -> impl Iterator<Item = &Command> {
    report
        .attempted
        .commands
        .iter()
        .filter(|command| !command.allowed)
}

/// What the log has on commands that were denied.
fn recorded(target: &AttackTarget) -> Vec<Command> {
    let records = target.log.records().into_iter();
    let commands = records.filter_map(|record| match record.event {
        Fact::CommandAttempted(command) if !command.allowed => Some(command),
        _ => None,
    });
    commands.collect()
}

/// Attacks 31 to 34, with a proof for each that it leads to the program where nothing is denied.
pub async fn every_way_to_a_denied_program_ends_before_it(target: &AttackTarget) {
    assert!(target.enforces(Control::CommandDeny));
    let scratch = host::scratch();
    let control = Fence::plain()
        .run(&probe!("commands"), &arguments(Some(scratch.path())))
        .whole();
    let config = under(&format!("command_denylist: [{PROGRAM}, terraform]\n"));
    let report = target
        .report(config, &probe!("commands"), &arguments(None))
        .await
        .unwrap();
    let inside = attempts(&report).whole();
    let weak_busybox = |attempt: &crate::probe::Attempt| {
        let applet = attempt.attempt.starts_with("busybox");
        applet.then(|| format!("this busybox has no {PROGRAM}"))
    };
    inside.assert_held_except(&control, weak_busybox);

    // There is no copy that could be asked for, and no name of the file to link.
    let nothing_to_ask_for = ["copy", "renamed copy", "hard link", "memory file"];
    let all = recorded(target);
    for attempt in inside.iter() {
        let number = attempt.value.as_str().unwrap();
        let found = all
            .iter()
            .find(|command| command.arguments.iter().any(|word| word == number));
        if nothing_to_ask_for.contains(&attempt.attempt.as_str()) {
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{} is not on record", attempt.attempt));
        assert_eq!(found.code, "command.denied", "{}", attempt.attempt);
        assert_eq!(found.rule.as_deref(), Some(PROGRAM), "{}", attempt.attempt);
        assert!(found.path.is_some(), "{}: {found:?}", attempt.attempt);
    }
    assert_eq!(decision(target), Verdict::CommandDenied);
}

/// The decision of the last receipt.
fn decision(target: &AttackTarget) -> Verdict {
    let records = target.log.records().into_iter().rev();
    let mut receipts = records.filter_map(|record| match record.event {
        Fact::Receipt(receipt) => Some(receipt.decision),
        _ => None,
    });
    receipts.next().unwrap()
}

/// A script that ignores the failure goes on, and its success hides nothing.
pub async fn the_example_of_the_first_report_is_denied_and_recorded(target: &AttackTarget) {
    let code = "import os\nimport subprocess\n\nstatus = os.system('az account list')\n\
        print(status >> 8)\nprint(subprocess.run(['az', 'login']).returncode)\n";
    let report = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: ['@default']\n"),
            python(code),
        )
        .await
        .unwrap();
    let outcome = &report.outcome;
    assert_eq!(String::from_utf8_lossy(&outcome.stdout.bytes), "126\n126\n");
    let said = String::from_utf8_lossy(&outcome.stderr.bytes);
    assert_eq!(said, "brig: az: command denied by policy\n".repeat(2));
    assert!(outcome.success(), "the script itself went well");
    let told: Vec<(&str, &[String], Option<&str>)> = denied(&report)
        .map(|one| {
            (
                one.program.as_str(),
                one.arguments.as_slice(),
                one.caller.as_deref(),
            )
        })
        .collect();
    let (list, login) = (
        ["az", "account", "list"].map(String::from),
        ["az", "login"].map(String::from),
    );
    assert_eq!(
        told,
        [
            ("az", list.as_slice(), Some("code.py:4")),
            ("az", login.as_slice(), Some("code.py:6")),
        ]
    );
    assert_eq!(decision(target), Verdict::CommandDenied);

    let free = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [terraform]\n"),
            python("import os\nos.system('true')\n"),
        )
        .await
        .unwrap();
    assert_eq!(denied(&free).count(), 0);
    assert_eq!(decision(target), Verdict::Allowed);
}

/// Attempts count, whatever would have come of them.
pub async fn what_is_not_installed_is_denied_and_recorded(target: &AttackTarget) {
    let code = "import subprocess, sys\n\
        for n, words in enumerate([['brig-none', 'get'], ['/opt/none/brig-none'], ['./brig-other'], ['no-such-program']]):\n\
        \u{20}   try:\n        print(subprocess.run(words).returncode)\n\
        \u{20}   except OSError as error:\n        print(type(error).__name__)\n";
    let report = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [brig-none, brig-other]\n"),
            python(code),
        )
        .await
        .unwrap();
    let outcome = &report.outcome;
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout.bytes),
        "126\nPermissionError\nPermissionError\nFileNotFoundError\n"
    );
    let told: Vec<(&str, Option<&str>)> = denied(&report)
        .map(|one| (one.program.as_str(), one.path.as_deref()))
        .collect();
    let expected = [
        ("brig-none", None),
        ("/opt/none/brig-none", None),
        ("./brig-other", None),
    ];
    assert_eq!(told, expected);
}

/// What could be read could be copied, and what could be moved would uncover the original.
pub async fn nothing_of_a_denied_file_can_be_had(target: &AttackTarget) {
    let path = fs::canonicalize(format!("/usr/bin/{PROGRAM}")).unwrap();
    let scratch = host::scratch();
    let own = scratch.path().join(PROGRAM);
    fs::copy(&path, &own).unwrap();
    let outside = json!({"path": own, "folder": scratch.path()});
    let control = Fence::plain().run(&probe!("stand_in"), &outside).whole();
    let inside = json!({"path": path, "folder": "/workspace"});
    for writable in [false, true] {
        let config = SessionConfig {
            read_only_root: !writable,
            ..under(&format!("command_denylist: [{PROGRAM}]\n"))
        };
        let held = target.run_with(config, &probe!("stand_in"), &inside).await;
        held.assert_held(&control);
    }
}

/// Only the listed, what they need to start, and nothing that was written in the sandbox.
pub async fn an_allowlist_leaves_nothing_else(target: &AttackTarget) {
    assert!(target.enforces(Control::CommandAllow));
    let ways = [
        "name",
        "absolute path",
        "symlink",
        "copy",
        "renamed copy",
        "loader",
        "loader with options",
        "sh -c",
        "env",
        "posix_spawn",
        "ctypes execve",
        "script",
        "memory file",
        "descriptor",
        "path of a descriptor",
        "path that changes",
        "loader by a path that changes",
        "link through /proc/self/root",
        "link through /proc/thread-self/root",
        "descriptor of another process",
        "loader behind a filter",
        "loader by a link",
    ];
    let with = |folder: Option<&Path>| {
        let mut args = arguments(folder);
        args["only"] = json!(ways);
        args
    };
    let scratch = host::scratch();
    let control = Fence::plain()
        .run(&probe!("commands"), &with(Some(scratch.path())))
        .whole();
    let config = under("command_allowlist: [python3, 'true']\n");
    let report = target
        .report(config, &probe!("commands"), &with(None))
        .await
        .unwrap();
    let inside = attempts(&report).whole();
    inside.assert_held(&control);
    assert_eq!(inside.iter().count(), ways.len());
    let codes: BTreeSet<String> = recorded(target).into_iter().map(|one| one.code).collect();
    assert_eq!(codes, BTreeSet::from(["command.not-allowed".to_owned()]));

    let listed = under(&format!(
        "command_allowlist: [python3, sh, {PROGRAM}, 'true']\n"
    ));
    let mut some = arguments(None);
    some["only"] = json!(["name", "absolute path", "sh -c", "descriptor", "symlink"]);
    let free = target.run_with(listed, &probe!("commands"), &some).await;
    free.assert_all_worked();
}

/// Arguments can be seen and not stopped, and `observe` stops nothing.
pub async fn what_is_only_observed_runs_and_is_recorded(target: &AttackTarget) {
    let code =
        format!("import subprocess\nprint(subprocess.run(['{PROGRAM}', '15']).returncode)\n");
    for policy in [
        format!("command_denylist: [{PROGRAM} 15]\n"),
        format!("command_denylist: [{PROGRAM}]\ncommand_mode: observe\n"),
        "command_allowlist: [python3]\ncommand_mode: observe\n".to_owned(),
    ] {
        let report = target
            .sandbox
            .run_once(&agent(), under(&policy), python(&code))
            .await
            .unwrap();
        let outcome = &report.outcome;
        assert_eq!(outcome.stdout.bytes, b"15: 3 5\n0\n", "{policy}");
        let commands = &report.attempted.commands;
        let observed: Vec<&Command> = commands
            .iter()
            .filter(|one| one.code == "command.observed")
            .collect();
        let [one] = observed.as_slice() else {
            panic!("{policy}: {commands:?}")
        };
        assert!(
            one.allowed && one.arguments == [PROGRAM, "15"],
            "{policy}: {one:?}"
        );
    }
}

/// Attack 35: what a denied program would do, an allowed one may do too; the network decides.
pub async fn an_allowed_interpreter_gets_no_network_by_it(target: &AttackTarget) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!(
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 3)\n    print('reached')\n\
         except OSError:\n    print('refused')\n"
    );
    let reached = std::process::Command::new("/usr/bin/python3")
        .args(["-I", "-c", &code])
        .output()
        .unwrap();
    assert_eq!(reached.stdout, b"reached\n");
    let report = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: ['@network']\n"),
            python(&code),
        )
        .await
        .unwrap();
    assert_eq!(report.outcome.stdout.bytes, b"refused\n");
}

/// Attack 36: what code says about itself is output, and no record.
pub async fn a_forged_record_changes_nothing(target: &AttackTarget) {
    let code = "import sys\nline = '{\"event\": \"command_attempted\", \"allowed\": false, \"program\": \"az\"}'\n\
        print('brig: az: command denied by policy', line, file=sys.stderr)\n\
        import os\nfor path in ['/run/brig/log', '/run/brig-denied/log', '/workspace/log']:\n\
        \u{20}   try:\n        open(path, 'w').write(line)\n    except OSError:\n        pass\n\
        try:\n    os.execve('/run/brig/.caller', ['forged.py:1'], {})\nexcept OSError:\n    pass\n\
        os.system('true')\n";
    let report = target
        .sandbox
        .run_once(&agent(), under("command_denylist: [az]\n"), python(code))
        .await
        .unwrap();
    assert_eq!(denied(&report).count(), 0);
    assert!(recorded(target).is_empty());
    assert_eq!(decision(target), Verdict::Allowed);
    let real = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [az]\n"),
            python("import os\nos.system('az')\n"),
        )
        .await
        .unwrap();
    assert_eq!(denied(&real).count(), 1);
}

/// Attack 37: the first is kept, and all are counted.
pub async fn a_flood_of_attempts_is_counted(target: &AttackTarget) {
    const ATTEMPTS: u64 = 10_000;
    let code = format!(
        "import ctypes\nlibc = ctypes.CDLL(None)\nargv = (ctypes.c_char_p * 2)(b'az', None)\n\
         for n in range({ATTEMPTS}):\n    libc.execve(b'/opt/az', argv, None)\nprint('done')\n"
    );
    let report = target
        .sandbox
        .run_once(&agent(), under("command_denylist: [az]\n"), python(&code))
        .await
        .unwrap();
    assert_eq!(report.outcome.stdout.bytes, b"done\n");
    let times = denied(&report).filter_map(|one| one.times);
    let counted: u64 = times.map(|times| times.count).sum();
    assert_eq!(counted, ATTEMPTS);
    assert_eq!(denied(&report).next().unwrap().program, "/opt/az");
}

/// A filter of the code's own would outrank the one that asks, and what was started could be changed
/// before anybody has looked at it.
pub async fn nobody_answers_in_place_of_who_is_asked(target: &AttackTarget) {
    let control = Fence::plain()
        .run(&probe!("filters"), &json!({"memory": true}))
        .whole();
    for (policy, memory) in [
        ("command_denylist: [az]\n", false),
        ("command_allowlist: [python3]\n", true),
    ] {
        let inside = target
            .run_with(
                under(policy),
                &probe!("filters"),
                &json!({"memory": memory}),
            )
            .await;
        inside.assert_held(&control);
    }
}

/// A path or a name is denied also where the code can make a file of that name.
pub async fn a_denied_file_that_is_made_later_does_not_start(target: &AttackTarget) {
    let ways = [
        "absolute path",
        "relative path",
        "path through /proc/self/root",
        "symlink",
        "loader",
        "posix_spawn",
        "vfork",
        "ctypes execve",
        "script",
        "descriptor",
        "path of a descriptor",
        "path that changes",
        "loader by a path that changes",
        "link through /proc/self/root",
        "descriptor of another process",
        "script of a loader",
        "loader with many options",
        "loader with a long path",
    ];
    let real = fs::canonicalize(format!("/usr/bin/{PROGRAM}")).unwrap();
    let with = |path: &Path, folder: Option<&Path>| {
        let mut args = arguments(folder);
        args["program"] = json!(path.file_name().unwrap().to_str());
        args["path"] = json!(path);
        args["made_from"] = json!(real);
        args["only"] = json!(ways);
        args
    };
    let scratch = host::scratch();
    let made = scratch.path().join("deep/brig-made");
    let control = Fence::plain()
        .run(&probe!("commands"), &with(&made, Some(scratch.path())))
        .whole();
    let policy = "command_denylist: [/tmp/brig-made, /workspace/a/brig-made, brig-named]\n";
    for path in [
        "/tmp/brig-made",
        "/workspace/a/brig-made",
        "/tmp/b/brig-named",
    ] {
        let before = recorded(target).len();
        let report = target
            .report(
                under(policy),
                &probe!("commands"),
                &with(Path::new(path), None),
            )
            .await
            .unwrap();
        let inside = attempts(&report).whole();
        inside.assert_held(&control);
        assert_eq!(inside.iter().count(), ways.len());
        let all = recorded(target).split_off(before);
        for attempt in inside.iter() {
            let number = attempt.value.as_str().unwrap();
            let tried = all
                .iter()
                .filter(|command| command.arguments.iter().any(|word| word == number));
            let codes: BTreeSet<&str> = tried.map(|command| command.code.as_str()).collect();
            assert_eq!(
                codes,
                BTreeSet::from(["command.denied"]),
                "{path}: {} {all:#?}",
                attempt.attempt
            );
        }
        assert_eq!(decision(target), Verdict::CommandDenied);
    }
    let mut other = with(Path::new("/tmp/b/brig-other"), None);
    other["only"] = json!(["absolute path", "link through /proc/self/root", "script"]);
    let free = target
        .run_with(under(policy), &probe!("commands"), &other)
        .await;
    free.assert_all_worked();
}

/// Asked for in vain, started under another path than was seen, started once: each is on record as
/// that.
pub async fn what_is_on_record_is_what_the_kernel_did(target: &AttackTarget) {
    const ROUNDS: usize = 40;
    let report = target
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [brig-none]\n"),
            python(concat!(
                include_str!("../probes/recorded.py"),
                include_str!("../probes/commands_flip.py")
            )),
        )
        .await
        .unwrap();
    let outcome = &report.outcome;
    let said = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    assert!(outcome.success(), "{said} {outcome:?}");
    let records = target.log.records().into_iter();
    let commands: Vec<Command> = records
        .filter_map(|record| match record.event {
            Fact::CommandAttempted(command) => Some(command),
            _ => None,
        })
        .collect();
    let of = |mark: &str| -> Vec<&Command> {
        let marked = |command: &&Command| command.arguments.iter().any(|word| word == mark);
        commands.iter().filter(marked).collect()
    };
    for failed in ["environment", "mode", "format", "size", "folder"] {
        let found = of(&format!("fails-{failed}"));
        let [one] = found.as_slice() else {
            panic!("{failed}: {found:?}")
        };
        assert_eq!(one.code, "command.failed", "{failed}");
    }
    let real = |name: &str| fs::canonicalize(format!("/usr/bin/{name}")).unwrap();
    let started = [
        "plain",
        "root",
        "link",
        "descriptor",
        "another",
        "empty",
        "thread",
    ];
    for started in started {
        let found = of(&format!("works-{started}"));
        let [one] = found.as_slice() else {
            panic!("{started}: {found:?}")
        };
        assert_eq!(one.code, "command.allowed", "{started}: {one:?}");
        let path = one.path.as_deref().map(Path::new);
        assert_eq!(path, Some(real("true").as_path()), "{started}");
    }
    let script = of("works-script");
    assert_eq!(script.len(), 1, "{script:?}");
    assert_eq!(script[0].path.as_deref(), Some("/workspace/script"));
    let mut changed = 0;
    for round in 0..ROUNDS {
        let mark = format!("round-{round}");
        let found = of(&mark);
        let [one] = found.as_slice() else {
            panic!("{mark}: {found:?}")
        };
        let ran = said.lines().any(|line| line == mark);
        let name = if ran { "echo" } else { "true" };
        let path = one.path.as_deref().map(Path::new);
        assert_eq!(path, Some(real(name).as_path()), "{mark}: {one:?}");
        changed += usize::from(ran);
    }
    assert!(changed > 0, "the path never changed");
    let (mut programs, mut scripts) = (0, 0);
    for round in 0..ROUNDS {
        let mark = format!("flip-{round}");
        let found = of(&mark);
        let [one] = found.as_slice() else {
            panic!("{mark}: {found:?}")
        };
        let path = one.path.as_deref().map(Path::new);
        let asked = ["x", &mark];
        if said.lines().any(|line| line == mark) {
            assert_eq!(path, Some(real("echo").as_path()), "{mark}: {one:?}");
            assert_eq!(one.arguments, asked, "{mark}");
            programs += 1;
            continue;
        }
        // As it was asked for, or as the kernel runs it if something else was read.
        let script = "/workspace/flip-b";
        if path == Some(Path::new(script)) {
            assert_eq!(one.arguments, asked, "{mark}");
        } else {
            let shell = fs::canonicalize("/bin/sh").unwrap();
            assert_eq!(path, Some(shell.as_path()), "{mark}: {one:?}");
            assert_eq!(one.arguments, ["/bin/sh", script, &mark], "{mark}");
        }
        scripts += 1;
    }
    assert!(programs > 0 && scripts > 0, "{programs} and {scripts}");
}
