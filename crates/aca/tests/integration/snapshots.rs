//! Sessions that go on from a snapshot: nothing runs before the policy was read, set and read back.

use std::path::Path;
use std::sync::Arc;

use brig_sandbox::{Sandbox, Session, SessionConfig};
use serde_json::json;

use crate::create::text;
use crate::stand_in::{Fault, StandIn};

fn process(stand_in: &StandIn, state: &Path) -> Sandbox {
    let builder = Sandbox::builder(Arc::new(stand_in.backend())).state_dir(state);
    builder.build().unwrap()
}

/// A session with a file, whose sandbox is gone.
async fn ended(stand_in: &StandIn, state: &Path) -> (Sandbox, Session) {
    let sandbox = process(stand_in, state);
    let session = crate::create::session(&sandbox, SessionConfig::default()).await;
    text(&session, "echo kept > file").await.unwrap();
    session.close().await.unwrap();
    assert_eq!(stand_in.state().snapshots.len(), 1);
    stand_in.state().sandboxes.clear();
    stand_in.state().log.clear();
    (sandbox, session)
}

#[tokio::test]
async fn a_restored_sandbox_runs_only_under_the_policy_that_was_set() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let (_sandbox, session) = ended(&stand_in, state.path()).await;
    assert_eq!(text(&session, "cat file").await.unwrap(), "kept\n");
    let log = stand_in.state().log.clone();
    let at = |kind: &str| log.iter().position(|one| *one == kind).unwrap();
    let after = |kind: &str, place: usize| {
        log[place..].iter().position(|one| *one == kind).unwrap() + place
    };
    assert!(at("create") < after("get", at("create")));
    assert!(after("get", at("create")) < at("egress policy"), "{log:?}");
    assert!(after("get", at("egress policy")) < at("exec"), "{log:?}");
    let value = stand_in
        .state()
        .sandboxes
        .values()
        .next()
        .unwrap()
        .value
        .clone();
    assert_eq!(
        value["lifecycle"]["autoDeletePolicy"]["enabled"], true,
        "the backstop"
    );
    session.destroy().await.unwrap();
    assert!(stand_in.state().snapshots.is_empty());
    stand_in.check_clean();
}

#[tokio::test]
async fn a_sandbox_that_wakes_up_open_is_deleted() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let (_sandbox, session) = ended(&stand_in, state.path()).await;
    stand_in.state().on_create =
        Some(|value| value["egressPolicy"]["defaultAction"] = json!("Allow"));
    let error = text(&session, "cat file").await.unwrap_err();
    assert_eq!(error.code(), "azure.egress-policy", "{error}");
    assert_eq!(
        (stand_in.count("exec"), stand_in.count("egress policy")),
        (0, 0)
    );
    stand_in.check_clean();
}

/// A sandbox from a snapshot has no label, so it can't be told from one that somebody else restored.
#[tokio::test]
async fn a_restore_whose_answer_is_lost_names_what_may_be_left() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let (_sandbox, session) = ended(&stand_in, state.path()).await;
    stand_in.fail("create", Fault::Lost);
    let error = text(&session, "cat file").await.unwrap_err();
    assert_eq!(error.code(), "azure.not-deleted", "{error}");
    let made: Vec<String> = stand_in.state().sandboxes.keys().cloned().collect();
    assert_eq!(made.len(), 1);
    assert!(error.to_string().contains(&made[0]), "{error}");
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (1, 0));
    assert_eq!(
        text(&session, "cat file").await.unwrap(),
        "kept\n",
        "the next one works"
    );
    session.destroy().await.unwrap();
    assert!(stand_in.state().sandboxes.contains_key(&made[0]));
    stand_in.state().sandboxes.clear();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_snapshot_whose_answer_is_lost_is_found_by_its_name() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let sandbox = process(&stand_in, state.path());
    let session = crate::create::session(&sandbox, SessionConfig::default()).await;
    stand_in.fail("snapshot", Fault::Lost);
    text(&session, "echo kept > file").await.unwrap();
    assert_eq!(
        (stand_in.count("snapshot"), stand_in.state().snapshots.len()),
        (1, 1)
    );
    session.destroy().await.unwrap();
    assert!(stand_in.state().snapshots.is_empty());
    stand_in.check_clean();
}

#[tokio::test]
async fn another_process_joins_the_sandbox_of_a_session() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let first = process(&stand_in, state.path());
    let agent = "agent".parse().unwrap();
    let id = "s".parse().unwrap();
    let session = first
        .create_session(&agent, Some(id), SessionConfig::default())
        .await
        .unwrap();
    text(&session, "echo kept > file").await.unwrap();
    session.close().await.unwrap();
    drop((session, first));
    stand_in.suspend();
    let second = process(&stand_in, state.path());
    let session = second
        .open_session(&agent, &"s".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(text(&session, "cat file").await.unwrap(), "kept\n");
    assert_eq!((stand_in.count("create"), stand_in.count("resume")), (1, 1));
    session.destroy().await.unwrap();
    assert!(stand_in.state().snapshots.is_empty());
    stand_in.check_clean();
}

#[tokio::test]
async fn a_snapshot_that_was_not_taken_is_an_error() {
    let (stand_in, state) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let sandbox = process(&stand_in, state.path());
    let session = crate::create::session(&sandbox, SessionConfig::default()).await;
    let no = json!({"success": false, "error": "no room"});
    stand_in.fail("snapshot", Fault::Answer(no));
    let error = text(&session, "echo lost > file").await.unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    assert_eq!(stand_in.count("snapshot"), 1);
    session.destroy().await.unwrap();
    stand_in.check_clean();
}
