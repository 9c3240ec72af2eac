//! Machines that lack something (attack 30): refused with a name, never silently weaker.

use std::ffi::OsString;

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Control, Limits, SessionConfig};
use serde_json::json;

use crate::ground::Ground;
use crate::owner::{self, Answer, Task};
use crate::{host, probe};

#[macro_export]
macro_rules! missing {
    ($ground:path) => {
        $crate::attacks!($ground, missing:
            without_user_namespaces_it_is_refused,
            without_landlock_it_is_refused,
            without_seccomp_it_is_refused,
            without_cgroups_what_was_asked_for_is_refused,
            a_waiver_is_by_name_and_on_record,
        );
    };
}

fn task(config: SessionConfig) -> Task {
    Task::run(config, &probe!("environment"), &json!({"names": []}))
}

/// Runs the owner where some system calls do not exist.
fn without(ground: &Ground, calls: &[u32], prctl: &[u32], config: SessionConfig) -> Answer {
    let scratch = host::scratch();
    let script = scratch.path().join("deny.py");
    std::fs::write(&script, probe!("deny").source()).unwrap();
    let owner = ground.owner.to_str().unwrap();
    let inner = serde_json::to_string(&task(config)).unwrap();
    let args = json!({"without": calls, "without_prctl": prctl, "program": [owner, inner]});
    let words: Vec<OsString> = vec![
        "/usr/bin/python3".into(),
        "-I".into(),
        script.into(),
        args.to_string().into(),
    ];
    let output = crate::fence::bounded(60, words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn assert_refused(answer: &Answer, names: &str) {
    let code = answer.error.as_deref().unwrap_or("none");
    let codes = [
        "policy.unenforceable",
        "backend.unavailable",
        "backend.setup",
    ];
    assert!(
        codes.contains(&code),
        "it ran, or failed in another way: {answer:?}"
    );
    let message = answer.message.to_lowercase();
    assert!(
        message.contains(names),
        "the message does not name {names}: {message}"
    );
    assert_eq!(answer.stdout, "", "nothing may have run");
}

const LANDLOCK: [u32; 3] = [444, 445, 446];
const SECCOMP: u32 = 317;
const PR_SET_SECCOMP: u32 = 22;
/// A call that nothing needs: the fence itself must not be what breaks the sandbox.
const UNUSED: u32 = 212;

pub async fn without_landlock_it_is_refused(ground: &Ground) {
    let control = without(ground, &[UNUSED], &[], SessionConfig::default());
    assert_eq!(
        (control.error.as_deref(), control.exit_code),
        (None, 0),
        "{control:?}"
    );
    let answer = without(ground, &LANDLOCK, &[], SessionConfig::default());
    assert_refused(&answer, "landlock");
}

pub async fn without_seccomp_it_is_refused(ground: &Ground) {
    let answer = without(
        ground,
        &[SECCOMP],
        &[PR_SET_SECCOMP],
        SessionConfig::default(),
    );
    assert_refused(&answer, "seccomp");
}

pub async fn without_user_namespaces_it_is_refused(ground: &Ground) {
    let through = |number: &str| -> Vec<OsString> {
        let script = format!("echo {number} > /proc/sys/user/max_user_namespaces; exec \"$@\"");
        [
            "unshare",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            &script,
            "sh",
        ]
        .map(OsString::from)
        .to_vec()
    };
    let control = owner::run(
        &ground.owner,
        &through("50"),
        &task(SessionConfig::default()),
        &[],
    );
    assert_eq!(
        (control.error.as_deref(), control.exit_code),
        (None, 0),
        "{control:?}"
    );
    let answer = owner::run(
        &ground.owner,
        &through("0"),
        &task(SessionConfig::default()),
        &[],
    );
    assert_refused(&answer, "user namespace");
}

/// In a namespace where no cgroup can be seen, a default falls back and a demand is refused.
pub async fn without_cgroups_what_was_asked_for_is_refused(ground: &Ground) {
    let hide = "mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"";
    let through: Vec<OsString> = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        hide,
        "sh",
    ]
    .map(OsString::from)
    .to_vec();
    let default = owner::run(
        &ground.owner,
        &through,
        &task(SessionConfig::default()),
        &[],
    );
    assert_eq!(
        (default.error.as_deref(), default.exit_code),
        (None, 0),
        "{default:?}"
    );

    let limits = Limits {
        memory_bytes: Limit::asked(256 * MIB),
        ..Limits::default()
    };
    let asked = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let answer = owner::run(&ground.owner, &through, &task(asked.clone()), &[]);
    assert_eq!(
        answer.error.as_deref(),
        Some("policy.unenforceable"),
        "{answer:?}"
    );
    assert!(answer.message.contains("memory"), "{}", answer.message);
    if ground.enforces(Control::Memory) {
        let control = owner::run(&ground.owner, &[], &task(asked), &[]);
        assert_eq!(
            control.error, None,
            "with cgroups it can be held: {control:?}"
        );
    } else {
        host::skip("control: this user has no cgroup that could hold memory");
    }
}

pub async fn a_waiver_is_by_name_and_on_record(ground: &Ground) {
    let hide = "mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"";
    let through: Vec<OsString> = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        hide,
        "sh",
    ]
    .map(OsString::from)
    .to_vec();
    let limits = Limits {
        memory_bytes: Limit::asked(256 * MIB),
        ..Limits::default()
    };
    let refused = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let mut waived = refused.clone();
    waived.waive.insert(Control::Memory);
    let mut other = refused.clone();
    other.waive.insert(Control::Cpu);
    for config in [refused, other] {
        let answer = owner::run(&ground.owner, &through, &task(config), &[]);
        assert_eq!(
            answer.error.as_deref(),
            Some("policy.unenforceable"),
            "{answer:?}"
        );
    }
    let answer = owner::run(&ground.owner, &through, &task(waived), &[]);
    assert_eq!(answer.error, None, "{answer:?}");
    assert_eq!(answer.waived, ["memory"]);

    let config = SessionConfig {
        waive: [Control::Memory].into(),
        ..SessionConfig::default()
    };
    ground
        .run_with(config, &probe!("environment"), &json!({"names": []}))
        .await;
    let recorded = ground.log.records().iter().any(|record| {
        matches!(&record.event, brig_audit::Event::SessionCreated { waived, .. } if waived == &["memory"])
    });
    assert!(recorded, "the waiver is not in the record");
}
