//! Processes that do not want to end (attacks 20 and 21).

use std::time::{Duration, Instant};

use brig_sandbox::{Control, KillReason, SessionConfig};
use serde_json::json;

use crate::fence::until;
use crate::leftovers::{Traces, cgroups_of};
use crate::owner::{self, Task};
use crate::target::{AttackTarget, request};
use crate::{host, probe};

#[macro_export]
macro_rules! stubborn {
    ($target:path) => {
        $crate::attacks!($target, stubborn:
            a_timeout_ends_every_kind_of_tree,
            a_storm_ends_at_its_deadline,
            a_cancel_ends_every_kind_of_tree,
            destroying_ends_every_kind_of_tree,
            nothing_outlives_a_killed_owner,
            a_killed_owner_leaves_nothing_for_the_next_start,
        );
    };
}

const WAYS: [&str; 5] = ["ignoring", "storm", "uninterruptible", "daemons", "stopped"];
/// For what must happen, on a machine as slow as it may be. The lifecycle gives an instance ten seconds before it is
/// ended as a whole.
const GRACE: Duration = Duration::from_secs(40);
/// How long the processes stay if nobody ends them: longer than all of a test, three times on gVisor.
const SECONDS: u32 = 300;

/// Where nothing refuses more processes, a storm ends by its limit; see [`crate::limits`]. In a kernel of its own
/// the guest counts them.
fn ways(target: &AttackTarget) -> impl Iterator<Item = &'static str> {
    let watched = !target.enforces(Control::Processes) || target.own_kernel;
    WAYS.into_iter()
        .filter(move |way| !(watched && *way == "storm"))
}

/// Attack 21.
pub async fn a_timeout_ends_every_kind_of_tree(target: &AttackTarget) {
    for way in ways(target) {
        let session = target.session(SessionConfig::default()).await;
        let mut limit = target.patience(Duration::from_secs(3));
        let (marker, start, running) = loop {
            let marker = host::marker();
            let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
            let mut asked = request(&probe!("stubborn"), &args);
            asked.timeout = Some(limit);
            let start = Instant::now();
            let running = session.start(asked).await.unwrap();
            let runs = target.until_runs(&session, &marker, true, limit).await;
            if runs && start.elapsed() < limit {
                break (marker, start, running);
            }
            // The machine is too slow for all of it to have begun.
            assert!(limit < GRACE, "{way}: it runs before the timeout");
            running.wait().await.unwrap();
            limit *= 2;
        };
        let outcome = running.wait().await.unwrap().outcome;
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        assert_eq!(
            outcome.killed,
            Some(KillReason::Timeout { limit_ms }),
            "{way}"
        );
        assert!(
            start.elapsed() < limit + target.patience(GRACE),
            "{way}: {:?}",
            start.elapsed()
        );
        assert!(
            target.until_runs(&session, &marker, false, GRACE).await,
            "{way}: processes are left"
        );
        session.destroy().await.unwrap();
    }
}

/// Attack 21, where there is never the same process to catch, and their number does not end it. The time between
/// deadline and end is compared with that of a program that only sleeps, on the same machine at the same time.
pub async fn a_storm_ends_at_its_deadline(target: &AttackTarget) {
    let quiet = lateness(target, "quiet").await;
    let storm = lateness(target, "churn").await;
    // gVisor once took five seconds to end the whole sandbox.
    let most = Duration::from_secs(4) + 10 * quiet;
    assert!(storm < most, "{storm:?} late; quiet: {quiet:?}");
}

/// How long after its deadline a program has ended.
async fn lateness(target: &AttackTarget, way: &str) -> Duration {
    let args = json!({"marker": host::marker(), "way": way, "seconds": SECONDS});
    let mut config = SessionConfig::default();
    config.waive.insert(Control::Processes);
    let session = target.session(config).await;
    let mut asked = request(&probe!("stubborn"), &args);
    let limit = target.patience(Duration::from_secs(2));
    asked.timeout = Some(limit);
    let start = Instant::now();
    let outcome = session.start(asked).await.unwrap().wait().await.unwrap();
    let took = start.elapsed();
    let outcome = outcome.outcome;
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    assert_eq!(
        outcome.killed,
        Some(KillReason::Timeout { limit_ms }),
        "{way}: {outcome:?}"
    );
    let said = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    assert!(said.contains("begun"), "control: {way}: {said}");
    target.clear_away(session).await;
    took.saturating_sub(limit)
}

pub async fn a_cancel_ends_every_kind_of_tree(target: &AttackTarget) {
    for way in ways(target) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let session = target.session(SessionConfig::default()).await;
        let running = session
            .start(request(&probe!("stubborn"), &args))
            .await
            .unwrap();
        let runs = target.until_runs(&session, &marker, true, GRACE).await;
        assert!(runs, "{way}: it runs");
        assert!(session.cancel(running.id()));
        let start = Instant::now();
        let outcome = running.wait().await.unwrap().outcome;
        assert_eq!(outcome.killed, Some(KillReason::Cancelled), "{way}");
        assert!(
            start.elapsed() < target.patience(GRACE),
            "{way}: {:?}",
            start.elapsed()
        );
        assert!(
            target.until_runs(&session, &marker, false, GRACE).await,
            "{way}: processes are left"
        );
        session.destroy().await.unwrap();
    }
}

pub async fn destroying_ends_every_kind_of_tree(target: &AttackTarget) {
    for way in ways(target) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let session = target.session(SessionConfig::default()).await;
        let running = session
            .start(request(&probe!("stubborn"), &args))
            .await
            .unwrap();
        let runs = target.until_runs(&session, &marker, true, GRACE).await;
        assert!(runs, "{way}: it runs");
        assert!(target.left(&marker), "{way}: it can be seen");
        session.destroy().await.unwrap();
        assert!(
            !target.left(&marker),
            "{way}: zero survivors once it is destroyed"
        );
        let outcome = running.wait().await.unwrap().outcome;
        assert_eq!(outcome.killed, Some(KillReason::Destroyed), "{way}");
    }
}

/// Attack 20.
pub async fn nothing_outlives_a_killed_owner(target: &AttackTarget) {
    for way in ways(target) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let config = target.config(SessionConfig::default());
        let task = Task::hold(config, &probe!("stubborn"), &args, None);
        let (mut owner, _stdout) = owner::start(&target.owner, &task, &std::env::temp_dir());
        let grace = target.patience(GRACE);
        assert!(until(grace, || target.left(&marker)), "{way}: it runs");
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(
            until(grace, || !target.left(&marker)),
            "{way}: processes outlive their owner"
        );
    }
}

/// Attack 20: the second half.
pub async fn a_killed_owner_leaves_nothing_for_the_next_start(target: &AttackTarget) {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let (temporary, before) = (host::open_scratch(), mounts());
    for _ in 0..5 {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": "daemons", "seconds": SECONDS});
        let task = Task::hold(SessionConfig::default(), &probe!("stubborn"), &args, None);
        let (mut owner, _stdout) = owner::start(&target.owner, &task, temporary.path());
        let alive = Traces::of(owner.id(), temporary.path());
        assert!(
            alive.children > 0,
            "its sandbox is there to be counted: {alive:?}"
        );
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(until(GRACE, || !target.left(&marker)));
        // The kernel takes a moment to let go of the last of them.
        let end = Instant::now() + GRACE;
        loop {
            target.backend.sweep().await.unwrap();
            if cgroups_of(owner.id()) == 0 || Instant::now() > end {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(cgroups_of(owner.id()), 0, "control groups are left");
    }
    assert_eq!(
        std::fs::read_dir(temporary.path()).unwrap().count(),
        0,
        "files are left"
    );
    assert_eq!(mounts(), before, "mounts are left");
    let args = json!({"marker": host::marker(), "seconds": 1});
    target
        .run(&probe!("daemon"), &args)
        .await
        .assert_all_worked();
}
