//! Memory, in every way there is to take it (attack 60).

use std::time::Duration;

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Control, KillReason, Limits, Outcome, SessionConfig};
use serde_json::{Value, json};

use crate::fence::Fence;
use crate::probe::Attempts;
use crate::target::{AttackTarget, attempts, request};
use crate::{host, probe};

#[macro_export]
macro_rules! memory {
    ($target:path) => {
        $crate::attacks!($target, memory:
            memory_beyond_the_cap_ends_the_tree,
            a_sum_of_small_processes_is_a_sum,
            reserved_memory_does_not_count,
            kernel_memory_is_bounded,
        );
    };
}

const CAP: u64 = 96 * MIB;
/// What the control group of a container allows beyond the limit, if the container has a kernel of its own.
const KERNEL_ROOM: u64 = 256 * MIB;
/// What an attack takes: well over the cap, and harmless to the machine if nothing holds it.
const WANTED: u64 = 3 * CAP;

fn config(target: &AttackTarget) -> SessionConfig {
    let enforced = target.enforces(Control::Memory);
    let memory_bytes = if enforced {
        Limit::asked(CAP)
    } else {
        Limit::default_of(CAP)
    };
    let limits = Limits {
        memory_bytes,
        disk_bytes: Limit::asked(2 * WANTED),
        ..Limits::default()
    };
    SessionConfig {
        limits,
        ..SessionConfig::default()
    }
}

fn args(way: &str) -> Value {
    json!({"way": way, "bytes": WANTED, "seconds": 8, "processes": 12, "folder": "/workspace"})
}

/// What is wrong about an outcome, if anything.
fn problem(target: &AttackTarget, outcome: &Outcome) -> Option<String> {
    let said = Attempts::parse(&outcome.stdout.bytes, &outcome.stderr.bytes);
    let took = said.find("took all of it");
    match &outcome.killed {
        // A cgroup never lets the peak pass; that of a container with a kernel of its own has room for the
        // kernel. A watcher sees it late, and how late is up to the machine: what it owes is the end.
        Some(KillReason::Memory {
            limit_bytes: CAP,
            peak_bytes,
        }) => {
            let most = match target.enforces(Control::Memory) {
                true if target.own_kernel => CAP + KERNEL_ROOM,
                true => 2 * CAP,
                false => u64::MAX,
            };
            let sensible = CAP / 2..=most;
            (!sensible.contains(peak_bytes)).then(|| format!("a peak of {peak_bytes}"))
        }
        // It took the processors too, so that what watches from inside did not get to run.
        Some(KillReason::Unobserved { .. }) if target.own_kernel => None,
        Some(other) => Some(format!("ended for another reason: {other:?}")),
        None if took.is_some_and(|attempt| attempt.ok) => Some("it took all it wanted".into()),
        None if took.is_none() && outcome.exit_code == 0 => Some("it said nothing".into()),
        None => None,
    }
}

/// The same outside, with a smaller bound, in namespaces that end with the probe.
fn control(way: &str) -> Attempts {
    let mut args = args(way);
    args["seconds"] = json!(3);
    args["folder"] = json!("/dev/shm");
    args["bytes"] = json!(2 * CAP);
    // A fresh network namespace has no loopback; that of the host is as good for this.
    let fence = if way == "tcp" {
        Fence::processes()
    } else {
        Fence::namespaces()
    };
    // Of this run alone, on a file system that all share.
    let name = host::marker();
    args["file"] = json!(name);
    let attempts = fence.run(&probe!("memory"), &args).whole();
    if way == "folder" {
        let _ = std::fs::remove_file(std::path::Path::new("/dev/shm").join(name));
    }
    attempts
}

async fn attack(target: &AttackTarget, way: &str) -> Option<String> {
    control(way).assert_all_worked();
    let report = target
        .report(config(target), &probe!("memory"), &args(way))
        .await
        .unwrap();
    problem(target, &report.outcome).map(|problem| format!("{way}: {problem}"))
}

/// One process, or memory that belongs to no process at all.
pub async fn memory_beyond_the_cap_ends_the_tree(target: &AttackTarget) {
    let mut problems = Vec::new();
    for way in [
        "one process",
        "without a main thread",
        "shared mapping",
        "remapped",
        "memory file",
        "folder",
        "system v",
    ] {
        problems.extend(attack(target, way).await);
    }
    // A kernel of the sandbox's own does not have the same.
    for way in ["page tables", "semaphores"] {
        if !target.own_kernel {
            problems.extend(attack(target, way).await);
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Each of them is below any limit that holds for one process.
pub async fn a_sum_of_small_processes_is_a_sum(target: &AttackTarget) {
    assert_eq!(attack(target, "many processes").await, None);
    let way = "children without a main thread";
    assert_eq!(attack(target, way).await, None);
    // The whole tree goes, not only the one that was met.
    let marker = host::marker();
    let session = target.session(config(target)).await;
    let script = format!(
        "bash -c 'exec -a {marker} sleep 20' & exec python3 -c 'b = bytearray(1); l = []\nwhile True: l.append(bytearray(1 << 20))'"
    );
    let running = session
        .start(brig_sandbox::Request::command(["bash", "-c", &script]))
        .await
        .unwrap();
    running.wait().await.unwrap();
    let soon = Duration::from_secs(10);
    assert!(target.until_runs(&session, &marker, false, soon).await);
    session.destroy().await.unwrap();
}

/// Address space that is never written, and pages that can be taken back.
pub async fn reserved_memory_does_not_count(target: &AttackTarget) {
    let mut asked = args("untouched");
    asked["seconds"] = json!(1);
    let report = target
        .report(config(target), &probe!("memory"), &asked)
        .await
        .unwrap();
    assert_eq!(report.outcome.killed, None, "reserving is not taking");
    let mut asked = args("read files");
    asked["seconds"] = json!(1);
    let report = target
        .report(config(target), &probe!("memory"), &asked)
        .await
        .unwrap();
    assert_eq!(report.outcome.killed, None, "the page cache gives way");
    assert!(attempts(&report).whole().ok("took all of it"));
}

/// Bytes that wait in pipes and sockets, where no process has them.
pub async fn kernel_memory_is_bounded(target: &AttackTarget) {
    for way in ["pipes", "sockets", "tcp"] {
        let outside = control(way);
        let refused = outside.get("took all of it").errno.clone();
        if let Some(error) = refused {
            host::skip(&format!(
                "control of {way}: the host's own limits stop it, {error}"
            ));
        }
        let session = target.session(config(target)).await;
        let running = session
            .start(request(&probe!("memory"), &args(way)))
            .await
            .unwrap();
        let outcome = running.wait().await.unwrap().outcome;
        session.destroy().await.unwrap();
        if target.enforces(Control::Memory) {
            assert_eq!(problem(target, &outcome), None, "{way}");
        } else {
            host::skip(&format!(
                "{way}: without a cgroup nothing counts the kernel's memory"
            ));
        }
    }
}
