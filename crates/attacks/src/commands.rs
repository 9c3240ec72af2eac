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
use crate::ground::{Ground, agent, attempts};
use crate::{host, probe};

#[macro_export]
macro_rules! commands {
    ($ground:path) => {
        $crate::attacks!($ground, commands:
            every_way_to_a_denied_program_ends_before_it,
            the_example_of_the_first_report_is_denied_and_recorded,
            what_is_not_installed_is_denied_and_recorded,
            nothing_of_a_denied_file_can_be_had,
            an_allowlist_leaves_nothing_else,
            what_is_only_observed_runs_and_is_recorded,
            an_allowed_interpreter_gets_no_network_by_it,
            a_forged_record_changes_nothing,
            a_flood_of_attempts_is_counted,
        );
    };
}

/// A program that every machine has, that does no harm, and whose output cannot be mistaken.
const PROGRAM: &str = "factor";

fn under(policy: &str) -> SessionConfig {
    let text = format!("name: commands\ndefaults: {{action: allow}}\n{policy}");
    let loaded = Document::load("commands.yaml", text, Compat::Strict).unwrap();
    let policies = PolicySet::new(vec![loaded.document]);
    SessionConfig::default().under(Arc::new(policies)).unwrap()
}

fn python(code: &str) -> Request {
    Request::code(brig_sandbox::Language::Python, code.as_bytes().to_vec())
}

/// Where the loader of this machine's programs is.
fn loader() -> PathBuf {
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
fn recorded(ground: &Ground) -> Vec<Command> {
    let records = ground.log.records().into_iter();
    let commands = records.filter_map(|record| match record.event {
        Fact::CommandAttempted(command) if !command.allowed => Some(command),
        _ => None,
    });
    commands.collect()
}

/// Attacks 31 to 34, with a proof for each that it leads to the program where nothing is denied.
pub async fn every_way_to_a_denied_program_ends_before_it(ground: &Ground) {
    assert!(ground.enforces(Control::CommandDeny));
    let scratch = host::scratch();
    let control = Fence::plain()
        .run(&probe!("commands"), &arguments(Some(scratch.path())))
        .whole();
    let config = under(&format!("command_denylist: [{PROGRAM}, terraform]\n"));
    let report = ground
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
    let all = recorded(ground);
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
    assert_eq!(decision(ground), Verdict::CommandDenied);
}

/// The decision of the last receipt.
fn decision(ground: &Ground) -> Verdict {
    let records = ground.log.records().into_iter().rev();
    let mut receipts = records.filter_map(|record| match record.event {
        Fact::Receipt(receipt) => Some(receipt.decision),
        _ => None,
    });
    receipts.next().unwrap()
}

/// A script that ignores the failure goes on, and its success hides nothing.
pub async fn the_example_of_the_first_report_is_denied_and_recorded(ground: &Ground) {
    let code = "import os\nimport subprocess\n\nstatus = os.system('az account list')\n\
        print(status >> 8)\nprint(subprocess.run(['az', 'login']).returncode)\n";
    let report = ground
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: ['@default']\n"),
            python(code),
        )
        .await
        .unwrap();
    let outcome = report.outcome.as_ref().unwrap();
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
    assert_eq!(decision(ground), Verdict::CommandDenied);

    let free = ground
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [terraform]\n"),
            python("import os\nos.system('true')\n"),
        )
        .await
        .unwrap();
    assert_eq!(denied(&free).count(), 0);
    assert_eq!(decision(ground), Verdict::Allowed);
}

/// Attempts count, whatever would have come of them.
pub async fn what_is_not_installed_is_denied_and_recorded(ground: &Ground) {
    let code = "import subprocess, sys\n\
        for n, words in enumerate([['brig-none', 'get'], ['/opt/none/brig-none'], ['./brig-other'], ['no-such-program']]):\n\
        \u{20}   try:\n        print(subprocess.run(words).returncode)\n\
        \u{20}   except OSError as error:\n        print(type(error).__name__)\n";
    let report = ground
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: [brig-none, brig-other]\n"),
            python(code),
        )
        .await
        .unwrap();
    let outcome = report.outcome.as_ref().unwrap();
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
pub async fn nothing_of_a_denied_file_can_be_had(ground: &Ground) {
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
        let held = ground.run_with(config, &probe!("stand_in"), &inside).await;
        held.assert_held(&control);
    }
}

/// Only the listed, what they need to start, and nothing that was written in the sandbox.
pub async fn an_allowlist_leaves_nothing_else(ground: &Ground) {
    assert!(ground.enforces(Control::CommandAllow));
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
    let report = ground
        .report(config, &probe!("commands"), &with(None))
        .await
        .unwrap();
    let inside = attempts(&report).whole();
    inside.assert_held(&control);
    assert_eq!(inside.iter().count(), ways.len());
    let codes: BTreeSet<String> = recorded(ground).into_iter().map(|one| one.code).collect();
    assert_eq!(codes, BTreeSet::from(["command.not-allowed".to_owned()]));

    let listed = under(&format!(
        "command_allowlist: [python3, sh, {PROGRAM}, 'true']\n"
    ));
    let mut some = arguments(None);
    some["only"] = json!(["name", "absolute path", "sh -c", "descriptor", "symlink"]);
    let free = ground.run_with(listed, &probe!("commands"), &some).await;
    free.assert_all_worked();
}

/// Arguments can be seen and not stopped, and `observe` stops nothing.
pub async fn what_is_only_observed_runs_and_is_recorded(ground: &Ground) {
    let code =
        format!("import subprocess\nprint(subprocess.run(['{PROGRAM}', '15']).returncode)\n");
    for policy in [
        format!("command_denylist: [{PROGRAM} 15]\n"),
        format!("command_denylist: [{PROGRAM}]\ncommand_mode: observe\n"),
        "command_allowlist: [python3]\ncommand_mode: observe\n".to_owned(),
    ] {
        let report = ground
            .sandbox
            .run_once(&agent(), under(&policy), python(&code))
            .await
            .unwrap();
        let outcome = report.outcome.as_ref().unwrap();
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
pub async fn an_allowed_interpreter_gets_no_network_by_it(ground: &Ground) {
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
    let report = ground
        .sandbox
        .run_once(
            &agent(),
            under("command_denylist: ['@network']\n"),
            python(&code),
        )
        .await
        .unwrap();
    assert_eq!(report.outcome.unwrap().stdout.bytes, b"refused\n");
}

/// Attack 36: what code says about itself is output, and no record.
pub async fn a_forged_record_changes_nothing(ground: &Ground) {
    let code = "import sys\nline = '{\"event\": \"command_attempted\", \"allowed\": false, \"program\": \"az\"}'\n\
        print('brig: az: command denied by policy', line, file=sys.stderr)\n\
        import os\nfor path in ['/run/brig/log', '/run/brig-denied/log', '/workspace/log']:\n\
        \u{20}   try:\n        open(path, 'w').write(line)\n    except OSError:\n        pass\n\
        try:\n    os.execve('/run/brig/.caller', ['forged.py:1'], {})\nexcept OSError:\n    pass\n\
        os.system('true')\n";
    let report = ground
        .sandbox
        .run_once(&agent(), under("command_denylist: [az]\n"), python(code))
        .await
        .unwrap();
    assert_eq!(denied(&report).count(), 0);
    assert!(recorded(ground).is_empty());
    assert_eq!(decision(ground), Verdict::Allowed);
    let real = ground
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
pub async fn a_flood_of_attempts_is_counted(ground: &Ground) {
    const ATTEMPTS: u64 = 10_000;
    let code = format!(
        "import ctypes\nlibc = ctypes.CDLL(None)\nargv = (ctypes.c_char_p * 2)(b'az', None)\n\
         for n in range({ATTEMPTS}):\n    libc.execve(b'/opt/az', argv, None)\nprint('done')\n"
    );
    let report = ground
        .sandbox
        .run_once(&agent(), under("command_denylist: [az]\n"), python(&code))
        .await
        .unwrap();
    assert_eq!(report.outcome.as_ref().unwrap().stdout.bytes, b"done\n");
    let listed = denied(&report).count() as u64;
    assert!(listed >= 1);
    assert_eq!(listed + report.attempted.omitted.commands, ATTEMPTS);
    assert_eq!(denied(&report).next().unwrap().program, "/opt/az");
}
