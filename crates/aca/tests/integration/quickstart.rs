//! The eight branches of `examples/azure`, as far as a stand-in without a network can have them: what is reached
//! and what is blocked is told by its decisions.

use std::sync::Arc;

use brig_audit::{Event, MemoryLog};
use brig_policy::{Compat, Document, Extra, Map, PolicySet};
use brig_sandbox::{Error, Language, Report, Request, Sandbox, Session, SessionConfig};
use serde_json::json;

use crate::stand_in::StandIn;

const POLICY: &str = include_str!("../../../../examples/policies/azure-quickstart.yaml");

async fn run(session: &Session, code: &str, tool: Option<&str>) -> Result<Report, Error> {
    let mut request = Request::code(Language::Python, code);
    if let Some(tool) = tool {
        let mut facts = Map::default();
        facts.insert("tool_name", tool);
        request.facts = Extra::new(facts).unwrap();
    }
    session.start(request).await?.wait().await
}

fn denied(result: Result<Report, Error>, rule: &str) {
    match result {
        Err(Error::Denied(denial)) => {
            assert!(format!("{denial:?}").contains(rule), "{denial:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_eight_branches() {
    let stand_in = StandIn::start().await;
    let log = Arc::new(MemoryLog::new(1000));
    let builder = Sandbox::builder(Arc::new(stand_in.backend())).recorder(log.clone());
    let sandbox = builder.build().unwrap();
    let policy = Document::load("policy.yaml", POLICY, Compat::Strict).unwrap();
    let policies = Arc::new(PolicySet::new(vec![policy.document]));
    let config = SessionConfig::default().under(policies).unwrap();
    let session = crate::create::session(&sandbox, config).await;
    let sent = stand_in
        .state()
        .sandboxes
        .values()
        .next()
        .unwrap()
        .value
        .clone();
    let allowed = json!([{"pattern": "www.python.org", "action": "Allow"}]);
    assert_eq!(sent["egressPolicy"]["hostRules"], allowed);

    let decided = |host: &str| json!([{"timestamp": "t", "host": host, "scheme": "https"}]);
    stand_in.state().decisions["allowed"] = decided("www.python.org");
    let reached = run(&session, "print('status 200')", None).await.unwrap();
    assert!(
        reached.attempted.egress[0].allowed,
        "allowed: a host on the list"
    );

    let before = stand_in.state().log.len();
    denied(
        run(&session, "import subprocess", None).await,
        "no-subprocess",
    );
    assert_eq!(stand_in.state().log.len(), before, "nothing was sent");

    stand_in.state().decisions["denied"] = decided("example.com");
    let fetch = "import urllib.request\ntry:\n    urllib.request.urlopen('http://192.0.2.1/', timeout=5)\n\
                 except OSError:\n    print('egress-blocked')";
    let blocked = run(&session, fetch, None).await.unwrap();
    assert_eq!(blocked.outcome.stdout.bytes, b"egress-blocked\n");
    assert_eq!(blocked.attempted.egress[0].host, "example.com");

    let sane = run(&session, "print(6 * 7)", None).await.unwrap();
    assert_eq!(sane.outcome.stdout.bytes, b"42\n");
    let tool = run(&session, "print('called')", Some("fetch_arxiv"))
        .await
        .unwrap();
    assert_eq!(tool.outcome.stdout.bytes, b"called\n");
    denied(
        run(&session, "print('called')", Some("evil_tool")).await,
        "known-tools-only",
    );

    let elsewhere = run(&session, "import os; print(os.getuid())", None)
        .await
        .unwrap();
    assert_eq!(
        elsewhere.outcome.stdout.bytes, b"65534\n",
        "not a process of ours"
    );

    session.destroy().await.unwrap();
    let hosts: Vec<(String, bool)> = (log.records().into_iter())
        .filter_map(|record| match record.event {
            Event::EgressDecided(egress) => Some((egress.host, egress.allowed)),
            _ => None,
        })
        .collect();
    assert_eq!(
        hosts,
        [
            ("www.python.org".into(), true),
            ("example.com".into(), false)
        ]
    );
    stand_in.check_clean();
}
