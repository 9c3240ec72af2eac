//! Sandboxes under lists of commands.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;

use brig_audit::Recorder;
use brig_native::NativeBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{AgentId, Language, Report, Request, Sandbox, SessionConfig};

pub fn under(policy: &str) -> SessionConfig {
    let text = format!("name: commands\ndefaults: {{action: allow}}\n{policy}");
    let loaded = Document::load("commands.yaml", text, Compat::Strict).unwrap();
    let policies = PolicySet::new(vec![loaded.document]);
    SessionConfig::default().under(Arc::new(policies)).unwrap()
}

pub fn sandbox(recorder: Arc<dyn Recorder>) -> Sandbox {
    let builder = Sandbox::builder(Arc::new(NativeBackend::new()));
    builder.recorder(recorder).build().unwrap()
}

pub fn agent() -> AgentId {
    "agent".parse().unwrap()
}

pub async fn run(recorder: Arc<dyn Recorder>, config: SessionConfig, code: &str) -> Report {
    let request = Request::code(Language::Python, code);
    let report = sandbox(recorder).run_once(&agent(), config, request).await;
    report.unwrap()
}

pub fn stdout(report: &Report) -> String {
    let outcome = report.outcome.as_ref().unwrap();
    String::from_utf8(outcome.stdout.bytes.clone()).unwrap()
}
