//! Changes of a session's network, several at a time.

use std::sync::Arc;

use brig_egress::{Layer, LayerKind, Rule};

use super::fake::{Fake, agent};
use crate::shared::lock;
use crate::{Sandbox, SessionConfig};

const WRITERS: usize = 4;
const CHANGES: usize = 40;

fn rule(text: &str) -> Rule {
    Rule::parse(text).expect("rule")
}

async fn many_at_a_time(sandbox: Sandbox, fake: Arc<Fake>) {
    let mut config = SessionConfig::default();
    config.network.layers = vec![Layer::new(LayerKind::Run).allow([rule("start.example")])];
    let session = sandbox.create_session(&agent(), None, config).await;
    let session = session.expect("session");
    let live = lock(&fake.networks)[0].clone();
    for round in 0..CHANGES {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (sandbox, id) = (sandbox.clone(), session.id().clone());
                tokio::spawn(async move {
                    let own = rule(&format!("w{writer}-{round}.example"));
                    let add = |layer: &mut Layer| layer.allow.push(own);
                    let changed = sandbox.change_network(&agent(), &id, add).await;
                    changed.expect("change");
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("writer");
        }
        // Looked at first: asking puts it right.
        let rules = live.current();
        let kept = sandbox.change_network(&agent(), session.id(), |_| {}).await;
        let kept = kept.expect("layer");
        assert_eq!(kept.allow.len(), WRITERS * (round + 1), "nothing is lost");
        let own = |layer: &&Layer| layer.kind == LayerKind::Session;
        let in_force: Vec<&Layer> = rules.layers().iter().filter(own).collect();
        assert_eq!(in_force, [&kept], "what was written last is in force");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_changes_at_a_time_the_last_one_holds() {
    let fake = Arc::new(Fake::default());
    let sandbox = Sandbox::builder(fake.clone()).build().expect("sandbox");
    many_at_a_time(sandbox, fake).await;

    let fake = Arc::new(Fake::default());
    let state = tempfile::tempdir().expect("folder");
    let builder = Sandbox::builder(fake.clone()).state_dir(state.path());
    many_at_a_time(builder.build().expect("sandbox"), fake).await;
}
