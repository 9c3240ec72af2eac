//! Nothing is left of a sandbox whose creation or end was given up half-way. The tests count the
//! children, descriptors and control groups of their process.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::{Backend, InitialState, Instance, Plan, SessionConfig};
use tokio::time::timeout;

async fn plan(backend: &NativeBackend) -> Plan {
    let config = SessionConfig::default();
    Plan::make(&config, backend, InitialState::Empty)
        .await
        .unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Control groups that carry this process's number.
fn groups() -> Vec<PathBuf> {
    let prefix = format!("brig-{}-", std::process::id());
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&prefix) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
    }
    found
}

/// What a service manager has to remove can take seconds on a slow machine.
async fn settled(what: impl Fn() -> bool) -> bool {
    for _ in 0..4000 {
        if what() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[test]
fn a_creation_that_is_given_up_leaves_nothing() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        let plan = plan(&backend).await;
        // What is made once per process is made now.
        backend
            .create(&plan)
            .await
            .unwrap()
            .destroy()
            .await
            .unwrap();
        let before = descriptors();
        let mut given_up = 0;
        for step in 0..40u64 {
            let patience = Duration::from_micros(100 * step);
            match timeout(patience, backend.create(&plan)).await {
                Ok(instance) => instance.unwrap().destroy().await.unwrap(),
                Err(_) => given_up += 1,
            }
        }
        assert!(given_up > 0, "none was given up");
        assert!(settled(|| children().is_empty()).await, "{:?}", children());
        assert!(settled(|| groups().is_empty()).await, "{:?}", groups());
        assert!(
            settled(|| descriptors() <= before).await,
            "{before} descriptors before, now {}",
            descriptors()
        );
    });
}

#[test]
fn an_end_that_is_given_up_can_be_taken_up_again() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend).await).await.unwrap();
        let process = format!("/proc/{}", instance.process_id().unwrap());
        {
            let mut end = pin!(instance.destroy());
            let now = end.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(now, Poll::Pending), "it ended at once");
        }
        instance.destroy().await.unwrap();
        assert!(!Path::new(&process).exists());
        assert!(settled(|| groups().is_empty()).await, "{:?}", groups());
        instance.destroy().await.unwrap();
    });
}

/// Two that are waited for at once: the second must not come back before the end.
#[test]
fn whoever_destroys_waits_for_the_end() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend).await).await.unwrap();
        let process = format!("/proc/{}", instance.process_id().unwrap());
        let gone = async |instance: &dyn Instance| {
            instance.destroy().await.unwrap();
            assert!(!Path::new(&process).exists());
        };
        tokio::join!(gone(instance.as_ref()), gone(instance.as_ref()));
    });
}

#[test]
fn an_instance_that_is_dropped_is_gone() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend).await).await.unwrap();
        let process = format!("/proc/{}", instance.process_id().unwrap());
        assert!(Path::new(&process).exists());
        drop(instance);
        assert!(!Path::new(&process).exists());
        assert!(settled(|| groups().is_empty()).await, "{:?}", groups());
    });
}

/// A kernel that lets go of a group late, as that of a busy machine does.
#[test]
fn a_group_that_stays_busy_for_a_while_is_removed() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        for dropped in [false, true] {
            let instance = backend.create(&plan(&backend).await).await.unwrap();
            let found = groups();
            let mut member = Command::new("sleep").arg("1").spawn().unwrap();
            let id = member.id().to_string();
            let joined = |group: &PathBuf| std::fs::write(group.join("cgroup.procs"), &id).is_ok();
            let busy = !found.is_empty() && found.iter().all(joined);
            let reaper = std::thread::spawn(move || member.wait());
            if dropped {
                drop(instance);
            } else {
                instance.destroy().await.unwrap();
            }
            assert!(settled(|| groups().is_empty()).await, "{:?}", groups());
            assert!(reaper.join().unwrap().unwrap().success());
            if !busy {
                let why = "there is no control group that this user may put a process into";
                return brig_testing::skip("a busy control group", why);
            }
        }
    });
}

/// Saving many files takes a while; what else runs on this thread must go on.
#[test]
fn a_save_does_not_hold_up_the_others() {
    brig_testing::alone!();
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend).await).await.unwrap();
        let content = vec![7; 64 << 20];
        for name in ["one", "two"] {
            let mut content = content.as_slice();
            let put = instance.put_file(name, 0o644, &mut content).await;
            assert_eq!(put.unwrap(), 64 << 20);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut ticks = 0;
        let mut save = pin!(instance.save(folder.path()));
        let saved = loop {
            tokio::select! {
                biased;
                saved = &mut save => break saved,
                () = tokio::time::sleep(Duration::from_millis(1)) => ticks += 1,
            }
        };
        saved.unwrap();
        assert_eq!(
            folder.path().join("two").metadata().unwrap().len(),
            64 << 20
        );
        assert!(ticks > 2, "{ticks} ticks");
        instance.destroy().await.unwrap();
    });
}
