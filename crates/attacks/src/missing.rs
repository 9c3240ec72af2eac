//! Machines that lack something (attack 30): refused with a name, never silently weaker.

use std::ffi::OsString;

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Control, Limits, SessionConfig};
use serde_json::{Value, json};

use crate::fence::bounded;
use crate::owner::{self, Answer, Task};
use crate::target::AttackTarget;
use crate::{host, probe};

#[macro_export]
macro_rules! missing {
    ($target:path) => {
        $crate::attacks!($target, missing:
            without_user_namespaces_it_is_refused,
            without_landlock_it_is_refused,
            without_seccomp_it_is_refused,
            without_cgroups_what_was_asked_for_is_refused,
            without_cgroups_best_effort_still_ends_what_takes_too_much,
            with_a_covered_proc_it_is_refused_and_says_why,
            a_waiver_is_by_name_and_on_record,
        );
    };
}

fn task(config: SessionConfig) -> Task {
    Task::run(config, &probe!("environment"), &json!({"names": []}))
}

/// Runs the owner in a world that lacks something.
fn within(target: &AttackTarget, world: Value, config: SessionConfig) -> Answer {
    within_task(target, world, &task(config))
}

fn within_task(target: &AttackTarget, mut world: Value, task: &Task) -> Answer {
    let scratch = host::scratch();
    let script = scratch.path().join("world.py");
    std::fs::write(&script, probe!("world").source()).unwrap();
    let inner = serde_json::to_string(task).unwrap();
    let words = target.owner.iter().map(|word| word.to_str().unwrap());
    world["program"] = words.chain([inner.as_str()]).collect();
    let words = [
        "/usr/bin/python3",
        "-I",
        script.to_str().unwrap(),
        &world.to_string(),
    ];
    let output = bounded(60, words.map(OsString::from)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn assert_ran(answer: &Answer) {
    assert_eq!(
        (answer.error.as_deref(), answer.exit_code),
        (None, 0),
        "{answer:?}"
    );
    assert!(answer.stdout.contains("PATH"), "{answer:?}");
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

pub async fn without_landlock_it_is_refused(target: &AttackTarget) {
    let world = |calls: &[u32]| within(target, json!({"calls": calls}), SessionConfig::default());
    assert_ran(&world(&[UNUSED]));
    assert_refused(&world(&LANDLOCK), "landlock");
}

pub async fn without_seccomp_it_is_refused(target: &AttackTarget) {
    let world = |call: u32, prctl: u32| {
        let lacks = json!({"calls": [call], "prctls": [prctl]});
        within(target, lacks, SessionConfig::default())
    };
    assert_ran(&world(UNUSED, UNUSED));
    assert_refused(&world(SECCOMP, PR_SET_SECCOMP), "seccomp");
}

pub async fn without_user_namespaces_it_is_refused(target: &AttackTarget) {
    let world = |number: u32| {
        within(
            target,
            json!({"user_namespaces": number}),
            SessionConfig::default(),
        )
    };
    assert_ran(&world(50));
    assert_refused(&world(0), "user_namespaces");
}

fn asking_for_memory() -> SessionConfig {
    let limits = Limits {
        memory_bytes: Limit::asked(256 * MIB),
        ..Limits::default()
    };
    SessionConfig {
        limits,
        ..SessionConfig::default()
    }
}

/// Where no cgroup can be seen, a default falls back and a demand is refused.
pub async fn without_cgroups_what_was_asked_for_is_refused(target: &AttackTarget) {
    let hidden = || json!({"hide_cgroups": true});
    assert_ran(&within(target, hidden(), SessionConfig::default()));
    let answer = within(target, hidden(), asking_for_memory());
    assert_eq!(
        answer.error.as_deref(),
        Some("policy.unenforceable"),
        "{answer:?}"
    );
    assert!(answer.message.contains("memory"), "{}", answer.message);
    if target.enforces(Control::Memory) {
        assert_ran(&owner::run(
            &target.owner,
            &[],
            &task(asking_for_memory()),
            &[],
        ));
    } else {
        host::skip("control: this user has no cgroup that could hold memory");
    }
}

/// Several processes, none of which is too large alone: only their sum is.
pub async fn without_cgroups_best_effort_still_ends_what_takes_too_much(target: &AttackTarget) {
    const CAP: u64 = 96 * MIB;
    let config = SessionConfig {
        limits: Limits {
            memory_bytes: Limit::best_effort(CAP),
            ..Limits::default()
        },
        ..SessionConfig::default()
    };
    let hidden = || json!({"hide_cgroups": true});
    let taking = |bytes: u64| {
        let args = json!({
            "way": "many processes", "bytes": bytes, "seconds": 6, "processes": 6,
            "folder": "/workspace",
        });
        let task = Task::run(config.clone(), &probe!("memory"), &args);
        within_task(target, hidden(), &task)
    };
    let little = taking(CAP / 4);
    assert_eq!((little.error, little.killed), (None, None), "the control");
    let much = taking(3 * CAP);
    assert_eq!(much.killed.as_deref(), Some("memory"), "{much:?}");
}

/// As in a container, which covers files of the kernel: no sandbox can have its own /proc there.
pub async fn with_a_covered_proc_it_is_refused_and_says_why(target: &AttackTarget) {
    let world = |cover: &[&str]| within(target, json!({"cover": cover}), SessionConfig::default());
    assert_ran(&world(&[]));
    let answer = world(&["/proc/interrupts"]);
    assert_eq!(
        answer.error.as_deref(),
        Some("backend.nested"),
        "{answer:?}"
    );
    assert!(answer.message.contains("/proc/interrupts"), "{answer:?}");
    assert_eq!(answer.stdout, "", "nothing may have run");
}

pub async fn a_waiver_is_by_name_and_on_record(target: &AttackTarget) {
    let waiving = |control| {
        let mut config = asking_for_memory();
        config.waive.insert(control);
        within(target, json!({"hide_cgroups": true}), config)
    };
    let other = waiving(Control::Cpu);
    assert_eq!(
        other.error.as_deref(),
        Some("policy.unenforceable"),
        "{other:?}"
    );
    let waived = waiving(Control::Memory);
    assert_ran(&waived);
    assert_eq!(waived.waived, ["memory"]);

    let config = SessionConfig {
        waive: [Control::Memory].into(),
        ..SessionConfig::default()
    };
    target
        .run_with(config, &probe!("environment"), &json!({"names": []}))
        .await;
    let recorded = target.log.records().iter().any(|record| {
        matches!(&record.event, brig_audit::Event::SessionCreated { waived, .. } if waived == &["memory"])
    });
    assert!(recorded, "the waiver is not in the record");
}

/// What a backend can't hold is refused by its name until it is given up, whoever asks for it.
pub async fn what_cannot_be_enforced_is_refused_by_name(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let limits = |limits| SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let asking = [
        (
            Control::Cpu,
            limits(Limits {
                cpus: Limit::asked(1.0),
                ..Limits::default()
            }),
        ),
        (Control::Memory, asking_for_memory()),
        (
            Control::Processes,
            limits(Limits {
                processes: Limit::asked(64),
                ..Limits::default()
            }),
        ),
        (
            Control::Mounts,
            crate::target::mount(scratch.path(), "/mnt/data", false),
        ),
    ];
    let (args, mut refused) = (json!({"names": []}), Vec::new());
    let agent = crate::target::agent();
    for (control, mut config) in asking {
        if target.enforces(control) {
            continue;
        }
        let others = target.waived.iter().filter(|waived| **waived != control);
        config.waive.extend(others);
        let run = |config| {
            let request = crate::target::request(&probe!("environment"), &args);
            target.sandbox.run_once(&agent, config, request)
        };
        let error = run(config.clone()).await.unwrap_err();
        assert_eq!(error.code(), "policy.unenforceable", "{error}");
        assert!(error.to_string().contains(control.name()), "{error}");
        config.waive.insert(control);
        let report = run(config).await.unwrap();
        assert!(report.waived.contains(&control), "{control:?}");
        assert!(report.outcome.success(), "{control:?}");
        refused.push(control);
    }
    assert!(!refused.is_empty(), "this backend holds everything");
}
