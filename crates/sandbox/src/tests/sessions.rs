//! Sessions on disk, without a backend.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use brig_audit::{Event as Fact, MemoryLog};
use tempfile::TempDir;

use super::fake::{Fake, session, words};
use crate::{AgentId, Sandbox, SessionStatus, Sessions};

struct Machine {
    _outer: TempDir,
    state: PathBuf,
    log: Arc<MemoryLog>,
}

impl Machine {
    /// With a closed session for each of these names.
    async fn with(names: &[(&str, &str)]) -> Self {
        let outer = tempfile::tempdir().expect("directory");
        let state = outer.path().join("state");
        let builder = Sandbox::builder(Arc::new(Fake::default()));
        let sandbox = builder.state_dir(&state).build().expect("sandbox");
        for (agent, id) in names {
            let created = sandbox
                .create_session(&named(agent), Some(session(id)), Default::default())
                .await;
            let created = created.expect("session");
            created.run(words("write a 1")).await.expect("report");
            created.close().await.expect("closed");
        }
        Self {
            _outer: outer,
            state,
            log: Arc::default(),
        }
    }

    fn sessions(&self) -> Sessions {
        Sessions::open(&self.state, self.log.clone()).expect("state directory")
    }

    fn facts(&self) -> Vec<Fact> {
        let records = self.log.records().into_iter();
        records.map(|record| record.event).collect()
    }
}

fn named(agent: &str) -> AgentId {
    agent.parse().expect("agent id")
}

#[tokio::test]
async fn a_session_is_found_by_its_directory_alone() {
    let machine = Machine::with(&[("alice", "one"), ("alice", "two"), ("bob", "two")]).await;
    // Records of other sessions are not read, nor its own.
    for name in ["alice/one", "alice/two"] {
        let record = machine.state.join("sessions").join(name);
        fs::write(record.join("session.json"), "{").expect("damaged");
    }
    let sessions = machine.sessions();
    let find = |agent: Option<&str>, id: &str| {
        let agent = agent.map(named);
        sessions.find(agent.as_ref(), &session(id))
    };
    assert_eq!(find(None, "one").expect("one"), named("alice"));
    assert_eq!(find(Some("bob"), "two").expect("by agent"), named("bob"));
    let unknown = find(None, "three").expect_err("unknown");
    assert_eq!(unknown.code(), "session.unknown");
    let unknown = find(Some("bob"), "one").expect_err("of another agent");
    assert_eq!(unknown.to_string(), "no session `bob/one`");
    let ambiguous = find(None, "two").expect_err("ambiguous");
    assert_eq!(ambiguous.code(), "session.ambiguous");
    let hint = ambiguous.hint().expect("hint");
    assert_eq!(hint, "use one of alice/two, bob/two");
}

#[tokio::test]
async fn sessions_are_listed_and_inspected_without_a_backend() {
    let machine = Machine::with(&[("bob", "b"), ("alice", "a"), ("alice", "broken")]).await;
    let broken = machine.state.join("sessions/alice/broken/session.json");
    fs::write(broken, "{").expect("damaged");
    let sessions = machine.sessions();
    let list = sessions.list().expect("list");
    let names: Vec<String> = (list.iter())
        .map(|info| format!("{}/{} {}", info.agent, info.id, info.status.name()))
        .collect();
    assert_eq!(
        names,
        ["alice/a ready", "alice/broken failed", "bob/b ready"]
    );
    let (agent, id) = (named("alice"), session("a"));
    let details = sessions.inspect(&agent, &id).expect("details");
    assert_eq!(details.info.status, SessionStatus::Ready);
    assert!(!details.enforcement.is_empty());
    assert!(details.checkpoints.is_empty());
    let backend = sessions.backend(&agent, &id).expect("backend");
    assert_eq!(backend.to_string(), details.info.backend);
    // The backend itself says the same.
    let builder = Sandbox::builder(Arc::new(Fake::default()));
    let sandbox = builder.state_dir(&machine.state).build().expect("sandbox");
    let own = sandbox.inspect_session(&agent, &id).await.expect("details");
    assert_eq!(own.enforcement, details.enforcement);
    assert_eq!(own.config, details.config);
}

#[tokio::test]
async fn a_change_of_the_network_is_recorded_and_seen() {
    let machine = Machine::with(&[("alice", "a")]).await;
    let sessions = machine.sessions();
    let (agent, id) = (named("alice"), session("a"));
    let rule = "example.com".parse().expect("rule");
    let change = |layer: &mut brig_egress::Layer| layer.allow.push(rule);
    let changed = sessions.change_network(&agent, &id, change);
    let changed = changed.expect("changed");
    assert_eq!(sessions.network(&agent, &id).expect("rules"), changed);
    let facts = machine.facts();
    assert!(
        matches!(&facts[..], [Fact::AllowlistChanged { added, .. }] if added == &["example.com"])
    );
    let missing = sessions.network(&agent, &session("b"));
    assert_eq!(missing.expect_err("missing").code(), "session.unknown");
}

#[tokio::test]
async fn a_session_is_destroyed_without_a_backend_even_if_its_record_is_damaged() {
    let machine = Machine::with(&[("alice", "a"), ("alice", "b")]).await;
    let sessions = machine.sessions();
    let agent = named("alice");
    let record = machine.state.join("sessions/alice/b/session.json");
    fs::write(record, "{").expect("damaged");
    for id in ["a", "b"] {
        assert!(sessions.destroy(&agent, &session(id)).await.expect(id));
        assert!(!sessions.destroy(&agent, &session(id)).await.expect(id));
    }
    assert!(sessions.list().expect("list").is_empty());
    let destroyed = |fact: &Fact| matches!(fact, Fact::SessionDestroyed);
    assert_eq!(
        machine
            .facts()
            .iter()
            .filter(|fact| destroyed(fact))
            .count(),
        2
    );
}
