//! Processes that do not want to end (attacks 20 and 21).

use std::time::{Duration, Instant};

use brig_sandbox::{Control, KillReason, SessionConfig};
use serde_json::json;

use crate::fence::until;
use crate::ground::{Ground, request};
use crate::leftovers::{Traces, cgroups_of};
use crate::owner::{self, Task};
use crate::{host, probe};

#[macro_export]
macro_rules! stubborn {
    ($ground:path) => {
        $crate::attacks!($ground, stubborn:
            a_timeout_ends_every_kind_of_tree,
            a_cancel_ends_every_kind_of_tree,
            destroying_ends_every_kind_of_tree,
            nothing_outlives_a_killed_owner,
            a_killed_owner_leaves_nothing_for_the_next_start,
        );
    };
}

const WAYS: [&str; 5] = ["ignoring", "storm", "uninterruptible", "daemons", "stopped"];
/// The lifecycle gives an instance two seconds before it is ended as a whole.
const GRACE: Duration = Duration::from_secs(4);
const SOON: Duration = Duration::from_secs(1);
const SECONDS: u32 = 25;

/// Where nothing refuses more processes, a storm ends by its limit; see [`crate::limits`].
fn ways(ground: &Ground) -> impl Iterator<Item = &'static str> {
    let watched = !ground.enforces(Control::Processes);
    WAYS.into_iter()
        .filter(move |way| !(watched && *way == "storm"))
}

/// Attack 21.
pub async fn a_timeout_ends_every_kind_of_tree(ground: &Ground) {
    for way in ways(ground) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let session = ground.session(SessionConfig::default()).await;
        let mut asked = request(&probe!("stubborn"), &args);
        let limit = ground.patience(Duration::from_millis(1500));
        asked.timeout = Some(limit);
        let start = Instant::now();
        let running = session.start(asked).await.unwrap();
        let runs = ground.until_runs(&session, &marker, true, GRACE).await;
        assert!(
            runs && start.elapsed() < limit,
            "{way}: it runs before the timeout"
        );
        let outcome = running.wait().await.unwrap().outcome.unwrap();
        let limit_ms = limit.as_millis() as u64;
        assert_eq!(
            outcome.killed,
            Some(KillReason::Timeout { limit_ms }),
            "{way}"
        );
        assert!(
            start.elapsed() < limit + ground.patience(GRACE),
            "{way}: {:?}",
            start.elapsed()
        );
        assert!(
            ground.until_runs(&session, &marker, false, SOON).await,
            "{way}: processes are left"
        );
        session.destroy().await.unwrap();
    }
}

pub async fn a_cancel_ends_every_kind_of_tree(ground: &Ground) {
    for way in ways(ground) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let session = ground.session(SessionConfig::default()).await;
        let running = session
            .start(request(&probe!("stubborn"), &args))
            .await
            .unwrap();
        let runs = ground.until_runs(&session, &marker, true, GRACE).await;
        assert!(runs, "{way}: it runs");
        assert!(session.cancel(running.id()));
        let start = Instant::now();
        let outcome = running.wait().await.unwrap().outcome.unwrap();
        assert_eq!(outcome.killed, Some(KillReason::Cancelled), "{way}");
        assert!(
            start.elapsed() < ground.patience(GRACE),
            "{way}: {:?}",
            start.elapsed()
        );
        assert!(
            ground.until_runs(&session, &marker, false, SOON).await,
            "{way}: processes are left"
        );
        session.destroy().await.unwrap();
    }
}

pub async fn destroying_ends_every_kind_of_tree(ground: &Ground) {
    for way in ways(ground) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let session = ground.session(SessionConfig::default()).await;
        let running = session
            .start(request(&probe!("stubborn"), &args))
            .await
            .unwrap();
        let runs = ground.until_runs(&session, &marker, true, GRACE).await;
        assert!(runs, "{way}: it runs");
        assert!(ground.left(&marker), "{way}: it can be seen");
        session.destroy().await.unwrap();
        assert!(
            !ground.left(&marker),
            "{way}: zero survivors once it is destroyed"
        );
        let outcome = running.wait().await.unwrap().outcome.unwrap();
        assert_eq!(outcome.killed, Some(KillReason::Destroyed), "{way}");
    }
}

/// Attack 20.
pub async fn nothing_outlives_a_killed_owner(ground: &Ground) {
    for way in ways(ground) {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": way, "seconds": SECONDS});
        let config = ground.config(SessionConfig::default());
        let task = Task::hold(config, &probe!("stubborn"), &args, None);
        let (mut owner, _stdout) = owner::start(&ground.owner, &task, &std::env::temp_dir());
        let grace = ground.patience(GRACE);
        assert!(until(grace, || ground.left(&marker)), "{way}: it runs");
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(
            until(grace, || !ground.left(&marker)),
            "{way}: processes outlive their owner"
        );
    }
}

/// Attack 20: the second half.
pub async fn a_killed_owner_leaves_nothing_for_the_next_start(ground: &Ground) {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let (temporary, before) = (host::open_scratch(), mounts());
    for _ in 0..5 {
        let marker = host::marker();
        let args = json!({"marker": marker, "way": "daemons", "seconds": SECONDS});
        let task = Task::hold(SessionConfig::default(), &probe!("stubborn"), &args, None);
        let (mut owner, _stdout) = owner::start(&ground.owner, &task, temporary.path());
        let alive = Traces::of(owner.id(), temporary.path());
        assert!(
            alive.children > 0,
            "its sandbox is there to be counted: {alive:?}"
        );
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(until(GRACE, || !ground.left(&marker)));
        // The kernel takes a moment to let go of the last of them.
        for _ in 0..20 {
            ground.backend.sweep().await.unwrap();
            if cgroups_of(owner.id()) == 0 {
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
    ground
        .run(&probe!("daemon"), &args)
        .await
        .assert_all_worked();
}
