//! Sandboxes under lists of commands.

use std::sync::Arc;

use brig_audit::Recorder;
use brig_native::NativeBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{AgentId, Language, Report, Request, Sandbox, SessionConfig};

pub(crate) fn under(policy: &str) -> SessionConfig {
    let text = format!("name: commands\ndefaults: {{action: allow}}\n{policy}");
    let loaded = Document::load("commands.yaml", text, Compat::Strict).unwrap();
    let policies = PolicySet::new(vec![loaded.document]);
    SessionConfig::default().under(Arc::new(policies)).unwrap()
}

pub(crate) fn sandbox(recorder: Arc<dyn Recorder>) -> Sandbox {
    let builder = Sandbox::builder(Arc::new(NativeBackend::new()));
    builder.recorder(recorder).build().unwrap()
}

pub(crate) fn agent() -> AgentId {
    "agent".parse().unwrap()
}

pub(crate) async fn run(recorder: Arc<dyn Recorder>, config: SessionConfig, code: &str) -> Report {
    let request = Request::code(Language::Python, code);
    let report = sandbox(recorder).run_once(&agent(), config, request).await;
    report.unwrap()
}

pub(crate) fn stdout(report: &Report) -> String {
    let outcome = &report.outcome;
    String::from_utf8(outcome.stdout.bytes.clone()).unwrap()
}
