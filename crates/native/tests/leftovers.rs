//! Nothing is left of a sandbox whose creation or end was given up half-way.

#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::{Backend, Instance, Plan, SessionConfig};
use tokio::time::timeout;

/// The tests count the children and descriptors of this process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn plan(backend: &NativeBackend) -> Plan {
    Plan::make(&SessionConfig::default(), backend, Vec::new()).unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let _alone = ALONE.lock().unwrap();
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
fn groups() -> Vec<String> {
    let prefix = format!("brig-{}-", std::process::id());
    let mut found = Vec::new();
    let mut todo = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&prefix) {
                found.push(name);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
    }
    found
}

async fn settled(what: impl Fn() -> bool) -> bool {
    for _ in 0..200 {
        if what() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[test]
fn a_creation_that_is_given_up_leaves_nothing() {
    run(async {
        let backend = NativeBackend::new();
        let plan = plan(&backend);
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
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend)).await.unwrap();
        let process = format!("/proc/{}", instance.process_id().unwrap());
        {
            let mut end = pin!(instance.destroy());
            let now = end.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(now, Poll::Pending), "it ended at once");
        }
        instance.destroy().await.unwrap();
        assert!(!Path::new(&process).exists());
        assert_eq!(groups(), Vec::<String>::new());
        instance.destroy().await.unwrap();
    });
}

/// Two that are waited for at once: the second must not come back before the end.
#[test]
fn whoever_destroys_waits_for_the_end() {
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend)).await.unwrap();
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
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend)).await.unwrap();
        let process = format!("/proc/{}", instance.process_id().unwrap());
        assert!(Path::new(&process).exists());
        drop(instance);
        assert!(!Path::new(&process).exists());
        assert_eq!(groups(), Vec::<String>::new());
    });
}

/// Saving many files takes a while; what else runs on this thread must go on.
#[test]
fn a_save_does_not_hold_up_the_others() {
    run(async {
        let backend = NativeBackend::new();
        let instance = backend.create(&plan(&backend)).await.unwrap();
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
