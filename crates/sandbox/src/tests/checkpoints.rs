use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use super::fake::{Fake, agent, checkpoint, session, words};
use crate::{Error, Request, Sandbox, Session, SessionConfig};

async fn fixture(durable: bool) -> (TempDir, Arc<Fake>, Sandbox, Session) {
    fixture_on(Fake::default(), durable).await
}

fn copying() -> Fake {
    Fake {
        copies: true,
        ..Fake::default()
    }
}

async fn fixture_on(fake: Fake, durable: bool) -> (TempDir, Arc<Fake>, Sandbox, Session) {
    let folder = tempfile::tempdir().expect("folder");
    let fake = Arc::new(fake);
    let mut builder = Sandbox::builder(fake.clone());
    if durable {
        builder = builder.state_dir(folder.path());
    }
    let sandbox = builder.build().expect("sandbox");
    let created = sandbox
        .create_session(&agent(), Some(session("s")), Default::default())
        .await;
    (folder, fake, sandbox, created.expect("session"))
}

async fn read(session: &Session, name: &str) -> Option<String> {
    let report = session
        .run(words(&format!("read {name}")))
        .await
        .expect("report");
    let outcome = report.outcome;
    outcome
        .success()
        .then(|| String::from_utf8(outcome.stdout.bytes).expect("text"))
}

fn layers(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path().join("layers"))
        .expect("layers")
        .flatten();
    entries
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n != ".lock"))
        .collect()
}

#[tokio::test]
async fn a_state_is_saved_restored_and_forked() {
    for (durable, fake) in [
        (true, Fake::default()),
        (false, Fake::default()),
        (true, copying()),
        (false, copying()),
    ] {
        let (_folder, fake, sandbox, original) = fixture_on(fake, durable).await;
        original.run(words("write a one")).await.expect("report");
        let saved = original
            .save_state(&checkpoint("first"))
            .await
            .expect("saved");
        assert_eq!(original.checkpoints().expect("list"), [saved]);
        original.run(words("write a two")).await.expect("report");
        original.run(words("write b two")).await.expect("report");
        original
            .save_state(&checkpoint("second"))
            .await
            .expect("saved");

        let fork = original
            .fork(&checkpoint("first"), Some(session("f")))
            .await
            .expect("fork");
        assert_eq!(read(&fork, "a").await.as_deref(), Some("one"));
        fork.run(words("write a fork")).await.expect("report");
        assert_eq!(
            read(&original, "a").await.as_deref(),
            Some("two"),
            "the other is untouched"
        );

        original
            .restore_state(&checkpoint("first"))
            .await
            .expect("restored");
        assert_eq!(read(&original, "a").await.as_deref(), Some("one"));
        assert_eq!(read(&original, "b").await, None);
        original
            .restore_state(&checkpoint("second"))
            .await
            .expect("restored");
        assert_eq!(read(&original, "b").await.as_deref(), Some("two"));
        assert_eq!(read(&fork, "a").await.as_deref(), Some("fork"));
        sandbox
            .destroy_session(&agent(), original.id())
            .await
            .expect("destroyed");
        assert_eq!(
            read(&fork, "a").await.as_deref(),
            Some("fork"),
            "a fork stands alone"
        );
        fork.destroy().await.expect("destroyed");
        assert_eq!(fake.alive.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_saved_state_outlives_changes_and_processes() {
    outlives_changes_and_processes(Fake::default()).await;
    outlives_changes_and_processes(copying()).await;
}

async fn outlives_changes_and_processes(fake: Fake) {
    let (folder, fake, sandbox, original) = fixture_on(fake, true).await;
    original.run(words("write a one")).await.expect("report");
    original.save_state(&checkpoint("c")).await.expect("saved");
    original.run(words("rm a")).await.expect("report");
    drop((original, sandbox));
    let sandbox = Sandbox::builder(fake)
        .state_dir(folder.path())
        .build()
        .expect("sandbox");
    let original = sandbox
        .open_session(&agent(), &session("s"))
        .await
        .expect("session");
    assert_eq!(read(&original, "a").await, None);
    original
        .restore_state(&checkpoint("c"))
        .await
        .expect("restored");
    assert_eq!(read(&original, "a").await.as_deref(), Some("one"));
}

#[tokio::test]
async fn a_tampered_state_is_refused_and_the_session_stays() {
    let (folder, _, _, session) = fixture(true).await;
    session.run(words("write a one")).await.expect("report");
    session.save_state(&checkpoint("c")).await.expect("saved");
    session.run(words("write a two")).await.expect("report");
    let layer = layers(&folder).remove(0);
    let file = layer.join("a");
    let content = fs::read(&file).expect("read");
    fs::remove_file(&file).expect("remove");
    fs::write(&file, "0ne").expect("write");

    let refused = session
        .restore_state(&checkpoint("c"))
        .await
        .expect_err("tampered");
    assert!(
        matches!(refused, Error::CheckpointTampered { .. }),
        "{refused}"
    );
    let refused = session
        .fork(&checkpoint("c"), None)
        .await
        .expect_err("tampered");
    assert!(
        matches!(refused, Error::CheckpointTampered { .. }),
        "{refused}"
    );
    assert_eq!(read(&session, "a").await.as_deref(), Some("two"));

    fs::write(&file, content).expect("write");
    session
        .restore_state(&checkpoint("c"))
        .await
        .expect("control: as it was, it is accepted");

    let record = folder.path().join("sessions/agent/s/checkpoints/c.json");
    let text = fs::read_to_string(&record).expect("read");
    let name = layer
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    fs::write(&record, text.replace(&name, "../../../../etc")).expect("write");
    let refused = session
        .restore_state(&checkpoint("c"))
        .await
        .expect_err("tampered");
    assert!(
        matches!(refused, Error::CheckpointTampered { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn names_of_states() {
    let (folder, _, _, session) = fixture(true).await;
    session.run(words("write a one")).await.expect("report");
    session.save_state(&checkpoint("c")).await.expect("saved");
    let again = session
        .save_state(&checkpoint("c"))
        .await
        .expect_err("taken");
    assert!(matches!(again, Error::CheckpointExists { .. }));
    let missing = session
        .restore_state(&checkpoint("other"))
        .await
        .expect_err("missing");
    assert!(matches!(missing, Error::NoCheckpoint(_)));
    session
        .delete_checkpoint(&checkpoint("c"))
        .await
        .expect("deleted");
    let missing = session
        .delete_checkpoint(&checkpoint("c"))
        .await
        .expect_err("missing");
    assert!(matches!(missing, Error::NoCheckpoint(_)));
    assert!(session.checkpoints().expect("list").is_empty());
    assert!(layers(&folder).is_empty(), "nobody refers to it any more");
}

#[tokio::test]
async fn a_state_is_neither_saved_nor_restored_while_something_runs() {
    let (_folder, _, _, session) = fixture(true).await;
    session
        .save_state(&checkpoint("empty"))
        .await
        .expect("saved");
    let running = session
        .start(Request::command(["sleep"]))
        .await
        .expect("running");
    for result in [
        session.save_state(&checkpoint("c")).await.map(|_| ()),
        session.restore_state(&checkpoint("empty")).await,
        session.close().await,
    ] {
        assert!(
            matches!(result, Err(Error::SessionBusy { .. })),
            "{result:?}"
        );
    }
    running.cancel();
    running.wait().await.expect("report");
    session
        .restore_state(&checkpoint("empty"))
        .await
        .expect("control");
}

#[tokio::test]
async fn a_host_folder_is_not_saved() {
    let fake = Arc::new(Fake::default());
    let sandbox = Sandbox::builder(fake).build().expect("sandbox");
    let folder = tempfile::tempdir().expect("folder");
    let config = SessionConfig {
        workspace: Some(folder.path().into()),
        ..SessionConfig::default()
    };
    let session = sandbox
        .create_session(&agent(), None, config)
        .await
        .expect("session");
    let refused = session
        .save_state(&checkpoint("c"))
        .await
        .expect_err("refused");
    assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused}");
}
