//! What a session leaves behind is copied to the host, file by file, while other executions of
//! the session may be at work on it (attack 11 in its present form).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Event, ExecutionHandle, Limits, Sandbox, Session, SessionConfig};
use serde_json::json;

use crate::probe::Probe;
use crate::target::{AttackTarget, agent, request, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! saving {
    ($target:path) => {
        $crate::attacks!($target, saving:
            saving_does_not_write_through_links,
            saving_does_not_read_through_links,
            a_moving_file_does_not_fill_the_host,
            holes_do_not_fill_the_host,
            writes_through_mappings_are_saved,
            every_way_to_map_a_file_is_seen,
            a_mapping_outlives_no_save_unseen,
        );
    };
}

/// How many saves meet a race.
const SAVES: usize = 30;

struct Kept {
    state: tempfile::TempDir,
    sandbox: Sandbox,
    session: Session,
}

async fn kept(target: &AttackTarget, limits: Limits) -> Kept {
    let state = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::builder(target.backend.clone())
        .state_dir(state.path())
        .build()
        .unwrap();
    let config = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let session = sandbox
        .create_session(&agent(), None, target.config(config))
        .await
        .unwrap();
    Kept {
        state,
        sandbox,
        session,
    }
}

impl Kept {
    async fn sh(&self, script: &str) {
        let report = self
            .session
            .run(vec!["sh".into(), "-c".into(), script.into()])
            .await
            .unwrap();
        let outcome = report.outcome;
        let said = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
        assert!(outcome.success(), "{script}: {said}");
    }

    async fn download(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.session
            .download(path, &mut bytes)
            .await
            .ok()
            .map(|_| bytes)
    }

    /// Starts a probe and waits for its first word.
    async fn race(&self, probe: &Probe, args: &serde_json::Value) -> ExecutionHandle {
        let mut asked = request(probe, args);
        asked.stream = true;
        // However long the saves take.
        asked.timeout = Some(Duration::from_secs(600));
        let mut running = self.session.start(asked).await.unwrap();
        while !matches!(running.next_event().await, None | Some(Event::Stdout(_))) {}
        running
    }
}

/// A link that was copied first must not lead a later copy elsewhere.
pub async fn saving_does_not_write_through_links(target: &AttackTarget) {
    let elsewhere = host::open_scratch();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o666)).unwrap();
    let mut kept = kept(target, Limits::default()).await;
    let (folder, file) = (elsewhere.path().display(), victim.display());

    kept.sh(&format!(
        "ln -s {folder} a; ln -s {file} b; ln -s {folder} c; mkdir d; echo 1 > d/victim"
    ))
    .await;
    kept.sh("rm a b c; mkdir a; echo owned > a/made; echo owned > a/victim; echo owned > b")
        .await;
    kept.sh("mkdir -p c/deep; echo owned > c/deep/made").await;
    kept.sh(&format!("mv d e; ln -s {folder} d; rm -r e")).await;
    kept.sh("rm d; mkdir d; echo owned > d/victim").await;
    let owned = Some(&b"owned\n"[..]);
    assert_eq!(kept.download("a/made").await.as_deref(), owned);
    kept.session.close().await.unwrap();

    kept.session = kept
        .sandbox
        .open_session(&agent(), kept.session.id())
        .await
        .unwrap();
    assert_eq!(kept.download("b").await.as_deref(), owned, "it was saved");
    assert_eq!(kept.download("c/deep/made").await.as_deref(), owned);
    kept.session.destroy().await.unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(
        fs::read_dir(elsewhere.path()).unwrap().count(),
        1,
        "something was made outside"
    );
}

/// The copy is made with the caller's rights: a link must not make it copy the caller's files.
pub async fn saving_does_not_read_through_links(target: &AttackTarget) {
    let marker = host::marker();
    let elsewhere = host::scratch();
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, &marker).unwrap();
    let kept = kept(target, Limits::default()).await;
    let args = json!({"secret": secret});
    let racing = kept.race(&probe!("swap_secret"), &args).await;
    for saves in 0..SAVES {
        kept.sh(&format!("echo {saves} > count")).await;
    }
    racing.cancel();
    racing.wait().await.unwrap();
    kept.session.close().await.unwrap();
    assert!(
        holds(kept.state.path(), "harmless"),
        "what the session wrote is there"
    );
    assert!(
        !holds(kept.state.path(), &marker),
        "a secret of the host was saved"
    );
    kept.session.destroy().await.unwrap();
}

/// Whether any file below holds the text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                holds(&entry.path(), text)
            } else {
                let bytes = if kind.is_file() {
                    fs::read(entry.path()).unwrap_or_default()
                } else {
                    Vec::new()
                };
                bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            }
        })
}

/// What lies below, at one moment. A walk takes time, and a file that is replaced meanwhile would be seen under each
/// of its names: so only files that two walks in a row have seen count. They were all there between the two.
fn bytes_on_disk(folder: &Path) -> u64 {
    // An inode's number is used again, but not with the same time of birth.
    type Found = HashMap<(u64, Option<SystemTime>), u64>;
    fn walk(folder: &Path, found: &mut Found) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => walk(&entry.path(), found),
                Ok(data) => {
                    let file = (data.ino(), data.created().ok());
                    found.insert(file, data.blocks() * 512);
                }
                Err(_) => {}
            }
        }
    }
    let (mut before, mut after) = (Found::new(), Found::new());
    walk(folder, &mut before);
    walk(folder, &mut after);
    let both = (before.iter()).filter_map(|(file, bytes)| Some(bytes.min(after.get(file)?)));
    both.sum()
}

/// The most that was on the host while `work` went on, which is given the most until then.
async fn most_on_disk(folder: &Path, work: impl AsyncFnOnce(&AtomicU64)) -> u64 {
    let (watched, most) = (folder.to_owned(), Arc::new(AtomicU64::new(0)));
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let seen = most.clone();
    let watcher = tokio::spawn(async move {
        let look = || seen.fetch_max(bytes_on_disk(&watched), Ordering::SeqCst);
        loop {
            look();
            tokio::select! {
                _ = &mut stopped => break look(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    });
    work(&most).await;
    let _ = stop.send(());
    watcher.await.unwrap();
    most.load(Ordering::SeqCst)
}

/// A file that moves on while it is copied is there once, not once in every folder.
pub async fn a_moving_file_does_not_fill_the_host(target: &AttackTarget) {
    // More than half of the file.
    const WHOLE: u64 = 8 * MIB;
    let cap = 32 * MIB;
    let limits = Limits {
        disk_bytes: Limit::asked(cap),
        ..Limits::default()
    };
    let kept = kept(target, limits).await;
    // The session's own records, which are no files of the code's; a new one lies beside the old.
    let records = bytes_on_disk(kept.state.path());
    let args = json!({"folders": 40, "bytes": 16 * MIB});
    let racing = kept.race(&probe!("chase"), &args).await;
    // Each execution is followed by a save; one that gives up with an error is as good.
    let saves = async |most: &AtomicU64| {
        for round in 0..30 {
            if round >= 4 && most.load(Ordering::SeqCst) > WHOLE {
                break;
            }
            let _ = kept.session.run(vec!["true".into()]).await;
        }
        let _ = kept.session.run(vec!["touch".into(), "stop".into()]).await;
    };
    let most = most_on_disk(kept.state.path(), saves).await;
    let chased = crate::target::attempts(&racing.wait().await.unwrap());
    let _ = kept.session.destroy().await;
    assert!(
        chased.get("moved").value.as_u64() > Some(0),
        "the file never moved: {chased:?}"
    );
    assert!(most > WHOLE, "the file was saved at all: {most}");
    assert!(
        most <= 2 * (cap + records),
        "{most} bytes on the host for a cap of {cap}, and {records} of records"
    );
}

/// Files that are nothing but holes weigh nothing, here and there.
pub async fn holes_do_not_fill_the_host(target: &AttackTarget) {
    let kept = kept(target, Limits::default()).await;
    let start = Instant::now();
    kept.sh("for i in $(seq 500); do truncate -s 200M hole$i; done; echo content > file")
        .await;
    let used = bytes_on_disk(kept.state.path());
    assert!(used < 32 * MIB, "{used} bytes for nothing but holes");
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    kept.session.close().await.unwrap();
    let again = kept
        .sandbox
        .open_session(&agent(), kept.session.id())
        .await
        .unwrap();
    let sizes = again
        .run(vec![
            "sh".into(),
            "-c".into(),
            "stat -c %s hole500; cat file".into(),
        ])
        .await;
    assert_eq!(sizes.unwrap().outcome.stdout.bytes, b"209715200\ncontent\n");
    again.destroy().await.unwrap();
}

/// A save is exact: also of what was written without a change of any time.
pub async fn writes_through_mappings_are_saved(target: &AttackTarget) {
    const NAMES: [&str; 6] = [
        "plain",
        "linked",
        "another",
        "deep/er/file",
        "closed",
        "left",
    ];
    let mut kept = kept(target, Limits::default()).await;
    let probe = probe!("mapped");
    let state = "state".parse().unwrap();
    run_in(&kept.session, &probe, &json!({"text": ""})).await;
    for text in ["again", "third", "again"] {
        // What lies in a layer is copied up now; then times grow old, and copies are marked with them.
        kept.sh("for file in plain linked deep/er/file closed left; do : >> $file; done")
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        kept.sh("true").await;
        let attempts = run_in(&kept.session, &probe, &json!({"text": text})).await;
        let stayed = attempts.ok("times stayed");
        assert!(stayed || target.own_kernel, "control: times don't tell");
        if !stayed {
            host::skip("times that stay when a file is written through a mapping");
        }
        let mut now = Vec::new();
        for name in NAMES {
            let bytes = kept.download(name).await.unwrap();
            // Names of one file part when one of them is copied up.
            let written = bytes.starts_with(text.as_bytes()) || name == "another";
            assert!(written, "{name} was written");
            now.push(bytes);
        }
        if text == "third" {
            kept.session.close().await.unwrap();
            let id = kept.session.id();
            kept.session = kept.sandbox.open_session(&agent(), id).await.unwrap();
        } else {
            kept.session.save_state(&state).await.unwrap();
            kept.sh("rm -r plain linked another deep closed left").await;
            kept.session.restore_state(&state).await.unwrap();
            kept.session.delete_checkpoint(&state).await.unwrap();
        }
        for (name, now) in NAMES.iter().zip(now) {
            let saved = kept.download(name).await.unwrap();
            let differs = saved.iter().zip(&now).position(|(a, b)| a != b);
            assert_eq!(
                (saved.len(), differs),
                (now.len(), None),
                "{name} of {text}"
            );
        }
    }
    kept.session.destroy().await.unwrap();
}

/// Times of access tell which files are read. So every mapping has to change them, whoever makes it and how.
pub async fn every_way_to_map_a_file_is_seen(target: &AttackTarget) {
    let mut kept = kept(target, Limits::default()).await;
    let probe = probe!("mapped_ways");
    let ways = |text: &'static str, round: &'static str| json!({"text": text, "round": round});
    run_in(&kept.session, &probe, &ways("", "make")).await;
    for text in ["second", "third", "fourth"] {
        // Times grow old, and what is saved is known by them.
        tokio::time::sleep(Duration::from_millis(200)).await;
        if text != "third" {
            for _ in 0..2 {
                kept.sh("true").await;
            }
        }
        let attempts = run_in(&kept.session, &probe, &ways(text, "write")).await;
        for name in ["opened unseen", "made unseen", "opened unseen by openat2"] {
            assert!(target.own_kernel || !attempts.ok(name), "{name}");
        }
        let names = attempts.get("names").value.clone();
        let names: Vec<String> = serde_json::from_value(names).unwrap();
        let mut stayed = 0;
        let mut now = Vec::new();
        for name in &names {
            let hidden = attempts.find(&format!("times stayed: {name}"));
            stayed += usize::from(hidden.is_some_and(|attempt| attempt.ok));
            let bytes = kept.download(name).await.unwrap();
            assert!(bytes.starts_with(text.as_bytes()), "{name} was written");
            now.push(bytes);
        }
        // A file of a layer is copied up when it is opened, which changes its times.
        let hides = text == "second" && !target.own_kernel;
        assert!(stayed > 8 || !hides, "control: times don't tell");
        kept.session.close().await.unwrap();
        let id = kept.session.id();
        kept.session = kept.sandbox.open_session(&agent(), id).await.unwrap();
        for (name, now) in names.iter().zip(now) {
            let saved = kept.download(name).await.unwrap();
            assert!(saved == now, "{name} of {text}");
        }
    }
    kept.session.destroy().await.unwrap();
}

/// A file that was mapped before a save and is written to after it, by an execution that goes on meanwhile.
pub async fn a_mapping_outlives_no_save_unseen(target: &AttackTarget) {
    let mut kept = kept(target, Limits::default()).await;
    let probe = probe!("mapped_long");
    kept.sh("head -c 100000 /dev/zero | tr '\\0' x > file")
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..2 {
        kept.sh("true").await;
    }
    let running = kept.race(&probe, &json!({})).await;
    // Two saves, which see the access and no write.
    for _ in 0..2 {
        kept.sh("head -c 3 file | grep -q xxx").await;
    }
    kept.sh("touch go").await;
    let attempts = crate::target::attempts(&running.wait().await.unwrap());
    assert!(attempts.ok("written"), "{attempts:?}");
    if !target.own_kernel {
        assert!(attempts.ok("times stayed"), "control: times don't tell");
    }
    let now = kept.download("file").await.unwrap();
    assert!(now.starts_with(b"late"), "it was written");
    kept.session.close().await.unwrap();
    kept.session = kept
        .sandbox
        .open_session(&agent(), kept.session.id())
        .await
        .unwrap();
    assert!(kept.download("file").await.unwrap() == now);
    kept.session.destroy().await.unwrap();
}
