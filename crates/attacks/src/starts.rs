//! Starts of programs that names alone don't show, and records of starts that never were.

use std::fs;
use std::path::{Path, PathBuf};

use brig_audit::{Command, Event as Fact};
use brig_sandbox::{Report, Request, SessionConfig};

use crate::commands::{loader, python, under};
use crate::target::{AttackTarget, agent};

#[macro_export]
macro_rules! starts {
    ($target:path) => {
        $crate::attacks!($target, starts:
            what_leads_to_a_denied_file_does_not_start,
            an_interpreter_starts_for_its_script_alone,
        );
    };
}

async fn run(target: &AttackTarget, config: SessionConfig, request: Request) -> Report {
    let report = target.sandbox.run_once(&agent(), config, request).await;
    report.unwrap()
}

fn said(report: &Report) -> Vec<String> {
    let outcome = &report.outcome;
    let text = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    assert!(outcome.success(), "{text} {outcome:?}");
    text.lines().map(str::to_owned).collect()
}

/// What the log has. The list in a report is short, and denied ones come first in it.
fn recorded(target: &AttackTarget) -> Vec<Command> {
    let records = target.log.records().into_iter();
    let commands = records.filter_map(|record| match record.event {
        Fact::CommandAttempted(command) => Some(command),
        _ => None,
    });
    commands.collect()
}

/// By the first line of a script, by a copy of the loader. And a program
/// that makes the calls of one that has just started is not on record as one.
pub async fn what_leads_to_a_denied_file_does_not_start(target: &AttackTarget) {
    let code = format!(
        "LOADER = {:?}\n{}",
        loader().display().to_string(),
        include_str!("../probes/starts.py")
    );
    // The control: everything runs where another name is denied.
    let free = run(
        target,
        under("command_denylist: [brig-none]\n"),
        python(&code),
    )
    .await;
    let free = said(&free);
    for line in [
        "static 0",
        "nested True",
        "script ran",
        "scripts ran",
        "loader ran",
        "loader-of-script /tmp/by-loader",
    ] {
        assert!(
            free.iter().any(|one| one == line),
            "the control: {line}: {free:?}"
        );
    }
    let before = recorded(target).len();
    let report = run(
        target,
        under("command_denylist: [brig-made]\n"),
        python(&code),
    )
    .await;
    let held = said(&report);
    let all = recorded(target).split_off(before);
    for line in [
        "static PermissionError",
        "nested False",
        "script PermissionError",
        "scripts PermissionError",
        "unreadable PermissionError",
        "loader PermissionError",
        "loader-of-script -9",
        "control 0",
    ] {
        assert!(held.iter().any(|one| one == line), "{line}: {held:?}");
    }
    for script in ["/tmp/by-static", "/tmp/by-script", "/tmp/by-two"] {
        let codes: Vec<&str> = all
            .iter()
            .filter(|one| one.program == script)
            .map(|one| one.code.as_str())
            .collect();
        assert!(!codes.is_empty(), "{script}");
        assert!(
            codes.iter().all(|code| *code == "command.denied"),
            "{script}: {codes:?}"
        );
    }
    // What looks like a start is none.
    assert_eq!(held.iter().filter(|line| *line == "storage 0").count(), 4);
    let codes = |word: &str| -> Vec<&str> {
        let has = |one: &&Command| one.arguments.iter().any(|other| other == word);
        all.iter()
            .filter(has)
            .map(|one| one.code.as_str())
            .collect()
    };
    assert!(codes("forged").is_empty(), "{:?}", codes("forged"));
    assert_eq!(codes("real-start"), ["command.allowed"], "the control");
    assert_eq!(codes("failed-start"), ["command.failed"]);
}

/// A script of this machine that perl runs.
fn script() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/bin").unwrap().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let by_perl = |path: &PathBuf| {
        let file = fs::symlink_metadata(path).is_ok_and(|file| file.is_file());
        let first = b"#!/usr/bin/perl\n";
        file && fs::read(path).is_ok_and(|text| text.starts_with(first))
    };
    paths.into_iter().find(by_perl)
}

/// An allowlist with a script on it does not list the interpreter of that script.
pub async fn an_interpreter_starts_for_its_script_alone(target: &AttackTarget) {
    let Some(script) = script() else {
        return crate::host::skip("no script of perl is installed");
    };
    let perl = fs::canonicalize("/usr/bin/perl").unwrap();
    let code = format!(
        "import os, subprocess\nPERL, SCRIPT = {perl:?}, {script:?}\n\
         os.symlink(SCRIPT, '/tmp/link')\n\
         for name, words in [('perl', [PERL, '-e', 'print \"ran\"']), ('given', [PERL, SCRIPT]),\n\
         \x20       ('script', [SCRIPT, '--version']), ('link', ['/tmp/link', '--version'])]:\n\
         \x20   try:\n        done = subprocess.run(words, stdin=-3, stdout=-1, stderr=-1, timeout=20)\n\
         \x20       print(name, 'killed' if done.returncode < 0 else done.stdout == b'ran' or 'started')\n\
         \x20   except OSError as error:\n        print(name, type(error).__name__)\n"
    );
    let listed = |more: &str| {
        under(&format!(
            "command_allowlist: [python3, {}{more}]\n",
            shown(&script)
        ))
    };
    let free = said(
        &run(
            target,
            listed(&format!(", {}", shown(&perl))),
            python(&code),
        )
        .await,
    );
    assert_eq!(
        free,
        [
            "perl True",
            "given started",
            "script started",
            "link started"
        ],
        "the control"
    );
    let report = run(target, listed(""), python(&code)).await;
    let held = said(&report);
    assert_eq!(
        held[..3],
        [
            "perl PermissionError",
            "given PermissionError",
            "script started"
        ]
    );
    // The interpreter would open the link again, which may lead to anything by then.
    assert_eq!(held[3], "link killed");
    let refused = report.attempted.commands.iter().filter(|one| !one.allowed);
    let codes: Vec<&str> = refused.map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["command.not-allowed"; 3]);
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
