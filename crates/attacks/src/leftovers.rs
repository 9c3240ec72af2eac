//! What sandboxes leave behind: nothing (attacks 64 and 65, the short form).

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_sandbox::{Backend, Request, Sandbox, SessionConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::owner::{self, Task};
use crate::target::{AttackTarget, agent};

#[macro_export]
macro_rules! leftovers {
    ($target:path) => {
        $crate::attacks!($target, leftovers:
            cycles_leave_nothing_behind,
            failures_at_every_step_leave_nothing_behind,
            many_at_once_with_failures_leave_nothing_behind,
        );
    };
}

/// What the owner of sandboxes has at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    pub descriptors: usize,
    pub threads: usize,
    pub children: usize,
    pub mounts: usize,
    pub cgroups: usize,
    /// In its folder for temporary files, which nobody shares with it.
    pub temporary: usize,
}

impl Traces {
    pub fn of(pid: u32, temporary: &Path) -> Self {
        let of = |name: &str| format!("/proc/{pid}/{name}");
        let tasks = fs::read_dir(of("task")).into_iter().flatten().flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")));
        Self {
            descriptors: count(of("fd")),
            threads: count(of("task")),
            children: children
                .flatten()
                .map(|text| text.split_whitespace().count())
                .sum(),
            mounts: fs::read_to_string(of("mountinfo")).map_or(0, |text| text.lines().count()),
            cgroups: cgroups_of(pid),
            temporary: count(temporary),
        }
    }

    /// Of this process.
    pub fn here() -> Self {
        Self::of(std::process::id(), &std::env::temp_dir())
    }

    /// Nothing is more than it was.
    pub fn within(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.children <= before.children
            && self.mounts <= before.mounts
            && self.cgroups <= before.cgroups
            && self.temporary <= before.temporary
    }
}

fn count(folder: impl AsRef<Path>) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Control groups that carry the number of their owner in their name.
pub fn cgroups_of(pid: u32) -> usize {
    folders_named(Path::new("/sys/fs/cgroup"), &format!("brig-{pid}-"), 8)
}

fn folders_named(folder: &Path, start: &str, depth: usize) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| {
            let named = entry.file_name().to_string_lossy().starts_with(start);
            usize::from(named) + folders_named(&entry.path(), start, depth - 1)
        })
        .sum()
}

/// Attack 64: thousands of times in `scripts/soak`, a few times here.
pub async fn cycles_leave_nothing_behind(target: &AttackTarget) {
    let answer = owner::ask(&target.owner, &[], &Task::Cycles { count: 100 }, &[]);
    check(&answer, 100);
}

/// Attack 65: descriptors run out a little later each time.
pub async fn failures_at_every_step_leave_nothing_behind(target: &AttackTarget) {
    let answer = owner::ask(&target.owner, &[], &Task::Starve { most: 200 }, &[]);
    check(&answer, 1);
    assert!(
        answer["failed"].as_u64().unwrap() > 3,
        "nothing was made to fail: {answer}"
    );
}

/// Attack 65: many at once, some of which cannot be made.
pub async fn many_at_once_with_failures_leave_nothing_behind(target: &AttackTarget) {
    let answer = owner::ask(&target.owner, &[], &Task::Crowd { count: 100 }, &[]);
    check(&answer, 90);
    assert!(
        answer["failed"].as_u64().unwrap() >= 1,
        "nothing was made to fail: {answer}"
    );
}

fn check(answer: &Value, least: u64) {
    let before: Traces = serde_json::from_value(answer["before"].clone()).unwrap();
    let after: Traces = serde_json::from_value(answer["after"].clone()).unwrap();
    let during: Traces = serde_json::from_value(answer["during"].clone()).unwrap();
    assert!(answer["worked"].as_u64().unwrap() >= least, "{answer}");
    assert!(
        !during.within(&before),
        "a living sandbox leaves traces that can be counted: {answer}"
    );
    assert!(after.within(&before), "left behind: {answer}");
}

/// Runs in the owner.
pub async fn cycles(backend: Arc<dyn Backend>, count: usize) -> Value {
    let sandbox = Sandbox::builder(backend.clone()).build().unwrap();
    one(&sandbox).await.unwrap();
    let (before, during) = (settle(None).await, living(&sandbox).await);
    let mut worked = 0;
    for _ in 0..count {
        one(&sandbox).await.unwrap();
        worked += 1;
    }
    let after = settle(Some(&before)).await;
    json!({"before": before, "during": during, "after": after, "worked": worked, "failed": 0})
}

/// Runs in the owner: the limit of descriptors is moved up one by one.
pub async fn starve(backend: Arc<dyn Backend>, most: u64) -> Value {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let sandbox = Sandbox::builder(backend.clone()).build().unwrap();
    one(&sandbox).await.unwrap();
    let (before, during) = (settle(None).await, living(&sandbox).await);
    let usual = getrlimit(Resource::Nofile);
    let (mut worked, mut failed, mut last) = (0, 0, String::new());
    for spare in (0..most).step_by(2) {
        let limit = before.descriptors as u64 + spare;
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(limit),
                maximum: usual.maximum,
            },
        )
        .unwrap();
        let made = one(&sandbox).await;
        setrlimit(Resource::Nofile, usual).unwrap();
        match made {
            Ok(()) => worked += 1,
            Err(error) => {
                failed += 1;
                last = error.to_string();
            }
        }
        settle(Some(&before)).await;
    }
    backend.sweep().await.unwrap();
    let after = settle(Some(&before)).await;
    json!({"before": before, "during": during, "after": after, "worked": worked, "failed": failed, "last": last})
}

/// Runs in the owner: every tenth asks for something that does not exist.
pub async fn crowd(backend: Arc<dyn Backend>, count: usize) -> Value {
    let sandbox = Sandbox::builder(backend.clone()).build().unwrap();
    one(&sandbox).await.unwrap();
    let (before, during) = (settle(None).await, living(&sandbox).await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        let sandbox = sandbox.clone();
        tasks.spawn(async move {
            let program = if number % 10 == 9 {
                "/nonexistent"
            } else {
                "/bin/true"
            };
            let asked = Request::command([program]);
            let report = sandbox
                .run_once(&agent(), SessionConfig::default(), asked)
                .await;
            report.is_ok_and(|report| report.outcome.success())
        });
    }
    let results = tasks.join_all().await;
    let worked = results.iter().filter(|ok| **ok).count();
    let after = settle(Some(&before)).await;
    json!({"before": before, "during": during, "after": after, "worked": worked, "failed": count - worked})
}

async fn one(sandbox: &Sandbox) -> brig_sandbox::Result<()> {
    let session = sandbox
        .create_session(&agent(), None, SessionConfig::default())
        .await?;
    let ran = session.run(vec!["/bin/true".into()]).await;
    session.destroy().await?;
    ran.map(|_| ())
}

async fn living(sandbox: &Sandbox) -> Traces {
    let session = sandbox
        .create_session(&agent(), None, SessionConfig::default())
        .await
        .unwrap();
    let traces = Traces::here();
    session.destroy().await.unwrap();
    traces
}

/// The kernel takes a moment to let go, and Tokio's idle threads stay for ten seconds.
async fn settle(wanted: Option<&Traces>) -> Traces {
    let Some(wanted) = wanted else {
        tokio::time::sleep(Duration::from_millis(200)).await;
        return Traces::here();
    };
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let now = Traces::here();
        if now.within(wanted) || Instant::now() > end {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
