//! Files that the backend keeps.

use brig_conformance::fake::Service;
use brig_sandbox::{CheckpointName, Error, SessionConfig};

use crate::leases::{agent, cat, create, id, process, run, write};

fn checkpoint(name: &str) -> CheckpointName {
    name.parse().unwrap()
}

#[tokio::test]
async fn only_snapshots_that_something_refers_to_are_kept() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let sandbox = process(&service, state.path());
    let session = create(&sandbox, "s", SessionConfig::default()).await;
    for round in 0..5 {
        run(&session, &[write("file", &round.to_string())]).await;
    }
    assert_eq!(service.snapshots(), 1, "the newest");
    session.save_state(&checkpoint("c")).await.unwrap();
    run(&session, &[write("file", "newer")]).await;
    assert_eq!(service.snapshots(), 2, "the newest, and the checkpoint");
    let fork = session
        .fork(&checkpoint("c"), Some(id("fork")))
        .await
        .unwrap();
    assert_eq!(run(&fork, &[cat("file")]).await, "4");
    session.delete_checkpoint(&checkpoint("c")).await.unwrap();
    session.destroy().await.unwrap();
    assert_eq!(run(&fork, &[cat("file")]).await, "4");
    fork.destroy().await.unwrap();
    assert_eq!((service.instances(), service.snapshots()), (0, 0));
}

#[tokio::test]
async fn a_changed_snapshot_is_refused() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let sandbox = process(&service, state.path());
    let session = create(&sandbox, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.save_state(&checkpoint("c")).await.unwrap();
    session.restore_state(&checkpoint("c")).await.unwrap();
    service.damage_snapshots();
    for refused in [
        session.restore_state(&checkpoint("c")).await,
        session.fork(&checkpoint("c"), None).await.map(drop),
    ] {
        assert!(
            matches!(refused, Err(Error::CheckpointTampered { .. })),
            "{refused:?}"
        );
    }
}

/// A crash between the end of a session and the deletion of its snapshots leaves nothing for good.
#[tokio::test]
async fn what_could_not_be_deleted_is_deleted_later() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let sandbox = process(&service, state.path());
    let session = create(&sandbox, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.close().await.unwrap();
    drop(session);
    service.set_unreachable(true);
    let other = process(&service, state.path());
    let failed = other.destroy_session(&agent(), &id("s")).await;
    assert!(failed.is_err(), "the service can't be told");
    assert_eq!(service.snapshots(), 1);
    service.set_unreachable(false);
    let session = create(&other, "t", SessionConfig::default()).await;
    run(&session, &[write("file", "two")]).await;
    assert_eq!(service.snapshots(), 1, "only that of the new session");
}

#[tokio::test]
async fn what_is_listed_has_its_size() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let sandbox = process(&service, state.path());
    let session = create(&sandbox, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "12345")]).await;
    assert_eq!(sandbox.list_sessions().unwrap()[0].bytes, 5);
    let saved = session.save_state(&checkpoint("c")).await.unwrap();
    assert_eq!(saved.bytes, 5);
    assert_eq!(session.checkpoints().unwrap(), [saved]);
}
