//! What a session leaves behind is copied to the host, file by file, while other executions of
//! the session may be at work on it (attack 11 in its present form).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Event, Limits, Running, Sandbox, Session, SessionConfig};
use serde_json::json;

use crate::ground::{Ground, agent, request};
use crate::probe::Probe;
use crate::{host, probe};

#[macro_export]
macro_rules! saving {
    ($ground:path) => {
        $crate::attacks!($ground, saving:
            saving_does_not_write_through_links,
            saving_does_not_read_through_links,
            a_moving_file_does_not_fill_the_host,
            holes_do_not_fill_the_host,
        );
    };
}

struct Kept {
    state: tempfile::TempDir,
    sandbox: Sandbox,
    session: Session,
}

async fn kept(ground: &Ground, limits: Limits) -> Kept {
    let state = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::builder(ground.backend.clone())
        .state_dir(state.path())
        .build()
        .unwrap();
    let config = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let session = sandbox
        .create_session(&agent(), None, ground.config(config))
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
        let outcome = report.outcome.unwrap();
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
    async fn race(&self, probe: &Probe, args: &serde_json::Value) -> Running {
        let mut asked = request(probe, args);
        asked.stream = true;
        let mut running = self.session.start(asked).await.unwrap();
        while !matches!(running.next_event().await, None | Some(Event::Stdout(_))) {}
        running
    }
}

/// A link that was copied first must not lead a later copy elsewhere.
pub async fn saving_does_not_write_through_links(ground: &Ground) {
    let elsewhere = host::open_scratch();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o666)).unwrap();
    let mut kept = kept(ground, Limits::default()).await;
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
pub async fn saving_does_not_read_through_links(ground: &Ground) {
    let marker = host::marker();
    let elsewhere = host::scratch();
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, &marker).unwrap();
    let kept = kept(ground, Limits::default()).await;
    let args = json!({"secret": secret, "seconds": 6});
    let racing = kept.race(&probe!("swap_secret"), &args).await;
    let start = Instant::now();
    let mut saves = 0;
    while start.elapsed() < Duration::from_secs(5) {
        kept.sh(&format!("echo {saves} > count")).await;
        saves += 1;
    }
    racing.cancel();
    racing.wait().await.unwrap();
    kept.session.close().await.unwrap();
    assert!(saves > 20, "only {saves} saves met the race");
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

fn bytes_on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_on_disk(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// The most that was on the host while `work` went on.
async fn most_on_disk<T>(folder: &Path, work: impl Future<Output = T>) -> (u64, T) {
    let watched = folder.to_owned();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let watcher = tokio::spawn(async move {
        let (mut most, mut stopped) = (0, stopped);
        loop {
            most = most.max(bytes_on_disk(&watched));
            tokio::select! {
                _ = &mut stopped => break most.max(bytes_on_disk(&watched)),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    });
    let value = work.await;
    let _ = stop.send(());
    (watcher.await.unwrap(), value)
}

/// A file that moves on while it is copied is there once, not once in every folder.
pub async fn a_moving_file_does_not_fill_the_host(ground: &Ground) {
    let cap = 32 * MIB;
    let limits = Limits {
        disk_bytes: Limit::asked(cap),
        ..Limits::default()
    };
    let kept = kept(ground, limits).await;
    let args = json!({"folders": 40, "bytes": 16 * MIB, "seconds": 6});
    let racing = kept.race(&probe!("chase"), &args).await;
    // Each execution is followed by a save; one that gives up with an error is as good.
    let saves = async {
        for _ in 0..4 {
            let _ = kept.session.run(vec!["true".into()]).await;
        }
    };
    let (most, ()) = most_on_disk(kept.state.path(), saves).await;
    let chased = crate::ground::attempts(&racing.wait().await.unwrap());
    let _ = kept.session.destroy().await;
    assert!(
        chased.get("moved").value.as_u64() > Some(0),
        "the file never moved: {chased:?}"
    );
    assert!(most > 8 * MIB, "the file was saved at all: {most}");
    assert!(
        most <= 2 * cap,
        "{most} bytes on the host for a cap of {cap}"
    );
}

/// Files that are nothing but holes weigh nothing, here and there.
pub async fn holes_do_not_fill_the_host(ground: &Ground) {
    let kept = kept(ground, Limits::default()).await;
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
    assert_eq!(
        sizes.unwrap().outcome.unwrap().stdout.bytes,
        b"209715200\ncontent\n"
    );
    again.destroy().await.unwrap();
}
