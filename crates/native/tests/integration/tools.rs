//! Tools where calls of the sandbox are restricted: under lists of commands, and with mounted host
//! directories, where connections go through the connector.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::config::MountSpec;
use brig_sandbox::{
    AgentId, FunctionTool, Outcome, Request, Sandbox, SessionConfig, ToolName, ToolRegistry,
    ToolSpec,
};
use serde_json::json;

const CALL: &str = r#"brig-tool echo '{"a": 1}'"#;

async fn run(config: SessionConfig, policy: &str, script: &str) -> Outcome {
    let mut registry = ToolRegistry::default();
    let spec = ToolSpec::new(ToolName::new("echo").unwrap(), "Answers what it is given.");
    let echo = FunctionTool::new(spec, |arguments| async move { Ok(json!(arguments)) });
    registry.add(echo).unwrap();
    let text = format!("defaults: {{action: allow}}\ntool_allowlist: [echo]\n{policy}");
    let document = Document::load("policy.yaml", &text, Compat::Strict).unwrap();
    let policies = PolicySet::new(vec![document.document]);
    let config = config.under(Arc::new(policies)).unwrap();
    let sandbox = Sandbox::builder(NativeBackend::new()).tools(registry);
    let request = Request::command(["/bin/sh", "-c", script]);
    let agent: AgentId = "tools".parse().unwrap();
    let report = sandbox.build().unwrap();
    let report = report.run_once(&agent, config, request).await.unwrap();
    report.outcome
}

fn stdout(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

#[tokio::test]
async fn a_command_list_does_not_stop_calls() {
    let script = format!("{CALL}; env true; echo $?");
    let lists = "command_allowlist: [sh]\n";
    let listed = run(SessionConfig::default(), lists, &script).await;
    assert_eq!(stdout(&listed), "{\"a\":1}\n126\n", "{listed:?}");
    let denied = "command_denylist: [env]\n";
    let denied = run(SessionConfig::default(), denied, &script).await;
    assert_eq!(stdout(&denied), "{\"a\":1}\n126\n", "{denied:?}");
    let free = run(SessionConfig::default(), "", &script).await;
    assert_eq!(stdout(&free), "{\"a\":1}\n0\n", "the control");
}

#[tokio::test]
async fn the_program_that_calls_tools_cannot_be_replaced() {
    let script = "cp /bin/ls \"$(command -v brig-tool)\" && echo replaced; rm -f \"$(command -v brig-tool)\" \
                  && echo removed; cp /bin/ls /tmp/ls && echo control";
    let outcome = run(SessionConfig::default(), "", script).await;
    assert_eq!(stdout(&outcome), "control\n", "{outcome:?}");
}

#[tokio::test]
async fn mounts_do_not_stop_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = SessionConfig::default();
    config.mounts.push(MountSpec {
        source: folder.path().to_owned(),
        target: "/mnt/data".into(),
        writable: false,
    });
    let outcome = run(config, "", &format!("ls -d /mnt/data; {CALL}")).await;
    assert_eq!(stdout(&outcome), "/mnt/data\n{\"a\":1}\n", "{outcome:?}");
}
