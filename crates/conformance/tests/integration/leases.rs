//! Instances that go on without the process that created them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brig_conformance::Step;
use brig_conformance::fake::{RemoteFake, Service};
use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::{
    AgentId, Backend, BackendId, Error, Sandbox, Session, SessionConfig, SessionId,
};

pub(crate) fn agent() -> AgentId {
    "agent".parse().unwrap()
}

pub(crate) fn id(name: &str) -> SessionId {
    name.parse().unwrap()
}

/// Another one on the same directory is another process, as far as anybody can tell.
pub(crate) fn process(service: &Service, state: &Path) -> Sandbox {
    process_on(RemoteFake::new(service.clone()), state)
}

pub(crate) fn process_on(backend: RemoteFake, state: &Path) -> Sandbox {
    let builder = Sandbox::builder(Arc::new(backend)).state_dir(state);
    builder.build().unwrap()
}

pub(crate) async fn create(sandbox: &Sandbox, name: &str, config: SessionConfig) -> Session {
    let created = sandbox
        .create_session(&agent(), Some(id(name)), config)
        .await;
    created.unwrap()
}

pub(crate) async fn run(session: &Session, steps: &[Step]) -> String {
    let running = session.start(RemoteFake::program(steps)).await.unwrap();
    let outcome = running.wait().await.unwrap().outcome;
    assert!(outcome.success(), "{outcome:?}");
    String::from_utf8(outcome.stdout.bytes).unwrap()
}

pub(crate) fn write(path: &str, text: &str) -> Step {
    Step::Write(path.into(), text.into())
}

pub(crate) fn cat(path: &str) -> Step {
    Step::Cat(path.into())
}

#[tokio::test]
async fn another_process_joins_the_instance() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let first = process(&service, state.path());
    let session = create(&first, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.close().await.unwrap();
    assert_eq!(service.instances(), 1, "it goes on");
    // The process ends without closing it.
    drop((session, first));

    let second = process(&service, state.path());
    let session = second.open_session(&agent(), &id("s")).await.unwrap();
    assert_eq!(run(&session, &[cat("file")]).await, "one");
    assert_eq!(service.instances(), 1, "no other was started");
    session.destroy().await.unwrap();
    assert_eq!((service.instances(), service.snapshots()), (0, 0));
}

#[tokio::test]
async fn an_instance_that_ended_is_replaced_with_its_files() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let lease = Duration::from_secs(5);
    let sandbox = process_on(
        RemoteFake::new(service.clone()).with_lease(lease),
        state.path(),
    );
    let session = create(&sandbox, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.close().await.unwrap();
    let end = tokio::time::Instant::now() + 12 * lease;
    while service.instances() > 0 && tokio::time::Instant::now() < end {
        tokio::time::sleep(lease / 50).await;
    }
    assert_eq!(service.instances(), 0, "control: the lease ended it");
    assert_eq!(run(&session, &[cat("file")]).await, "one");
    session.close().await.unwrap();

    service.end_instances();
    assert_eq!(run(&session, &[cat("file")]).await, "one");
}

#[tokio::test]
async fn another_process_destroys_a_session_with_its_instance() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let first = process(&service, state.path());
    let session = create(&first, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.close().await.unwrap();
    let second = process(&service, state.path());
    second.destroy_session(&agent(), &id("s")).await.unwrap();
    assert_eq!((service.instances(), service.snapshots()), (0, 0));
    assert!(second.list_sessions().unwrap().is_empty());
}

#[tokio::test]
async fn a_session_is_destroyed_only_by_its_own_backend() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let own: BackendId = "remote:east".parse().unwrap();
    let east = RemoteFake::new(service.clone()).named(own.clone());
    let east = process_on(east, state.path());
    let session = create(&east, "s", SessionConfig::default()).await;
    run(&session, &[write("file", "one")]).await;
    session.close().await.unwrap();
    let west = process(&Service::default(), state.path());
    let refused = west.destroy_session(&agent(), &id("s")).await;
    assert!(
        matches!(&refused, Err(Error::OtherBackend { backend, .. }) if *backend == own),
        "{refused:?}"
    );
    let refused = west.open_session(&agent(), &id("s")).await;
    assert!(
        matches!(refused, Err(Error::OtherBackend { .. })),
        "{refused:?}"
    );
    assert_eq!(service.instances(), 1);
    drop(session);
    assert_eq!(east.list_sessions().unwrap()[0].backend, "remote:east");
    east.destroy_session(&agent(), &id("s")).await.unwrap();
    assert_eq!((service.instances(), service.snapshots()), (0, 0));
}

#[tokio::test]
async fn network_rules_reach_an_instance_that_no_process_has_open() {
    let (service, state) = (Service::default(), tempfile::tempdir().unwrap());
    let first = process(&service, state.path());
    let rule = |text: &str| Rule::parse(text).unwrap();
    let mut config = SessionConfig::default();
    config.network.layers = vec![Layer::new(LayerKind::Run).allow([rule("start.example")])];
    let session = create(&first, "s", config.clone()).await;
    session.close().await.unwrap();
    drop((session, first));

    let second = process(&service, state.path());
    let added = rule("added.example");
    let add = |layer: &mut Layer| layer.allow.push(added.clone());
    let changed = second.change_network(&agent(), &id("s"), add).await;
    changed.unwrap();
    let rules = service.rules();
    assert_eq!(rules.len(), 1);
    let in_force = |rule: &Rule| {
        rules[0]
            .layers()
            .iter()
            .any(|layer| layer.allow.contains(rule))
    };
    assert!(in_force(&added), "{rules:?}");
    assert!(in_force(&rule("start.example")), "{rules:?}");
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_named_with_a_fix() {
    let service = Service::default();
    let backend = RemoteFake::new(service.clone());
    service.set_unreachable(true);
    let cause = backend.probe(&SessionConfig::default()).await.unwrap_err();
    assert_eq!(cause.code.code(), "engine.unreachable");
    let state = tempfile::tempdir().unwrap();
    let sandbox = process_on(backend, state.path());
    let config = SessionConfig::default();
    let created = sandbox.create_session(&agent(), None, config).await;
    let error = created.unwrap_err();
    assert_eq!(error.code(), "engine.unreachable");
    assert_eq!(error.hint().as_deref(), Some("start the service"));
    assert_eq!(
        error.to_string(),
        "the remote backend cannot be used here: the service does not answer"
    );
    assert!(
        sandbox.list_sessions().unwrap().is_empty(),
        "nothing is left"
    );
}
