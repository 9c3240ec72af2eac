//! Commands that can't be run in a container, and the record of those that were tried.

mod common;

use std::sync::Arc;

use brig_docker::DockerBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{
    AgentId, Backend, Control, Language, Report, Request, Sandbox, SessionConfig, Strength,
};
use common::Engine;

const DENIED: &str = "
name: deny
defaults: {action: allow}
command_denylist: [curl, az]
";

fn under(config: SessionConfig, text: &str) -> SessionConfig {
    let loaded = Document::load("p.yaml", text, Compat::Strict).expect("a policy");
    let policies = PolicySet::new(vec![loaded.document]);
    config.under(Arc::new(policies)).expect("sound")
}

async fn run(backend: &Arc<DockerBackend>, config: SessionConfig, request: Request) -> Report {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let agent: AgentId = "agent".parse().expect("name");
    let run = sandbox.run_once(&agent, config, request).await;
    run.expect("a report")
}

fn text(report: &Report) -> String {
    let outcome = report.outcome.as_ref().expect("an outcome");
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

fn sh(script: &str) -> Request {
    Request::command(["/bin/sh", "-c", script])
}

/// Ways to a program, each of which says `ran` if it gets there.
const WAYS: [&str; 14] = [
    "curl -V",
    "/usr/bin/curl -V",
    "sh -c 'curl -V'",
    "env -i PATH=/usr/bin curl -V",
    "nice curl -V",
    "echo -V | xargs curl",
    "find /etc/hostname -exec curl -V \\;",
    "ln -s /usr/bin/curl /tmp/link && /tmp/link -V",
    "cp /usr/bin/curl /tmp/copy && /tmp/copy -V",
    "cp /usr/bin/curl /tmp/other && chmod +x /tmp/other && exec /tmp/other -V",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/curl -V",
    "echo Y3VybCAtVgo= | base64 -d | sh",
    "c'u'rl -V",
    "PATH=/usr/bin; curl -V",
];

async fn no_way_leads_to_a_denied_program(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("denied programs on {runtime}")) else {
        return;
    };
    let backend = engine.backend().await;
    let watched = runtime != "gvisor";
    let free = engine.config(runtime);
    let mut held = free.clone();
    if !watched {
        held.waive.insert(Control::CommandRecord);
    }
    let held = under(held, DENIED);
    for way in WAYS {
        let script = format!("({way}) 2>/dev/null | grep -q '^curl ' && echo ran");
        let control = run(&backend, free.clone(), sh(&script)).await;
        assert_eq!(text(&control), "ran\n", "control: {way}");
        let report = run(&backend, held.clone(), sh(&script)).await;
        assert_eq!(text(&report), "", "{way}");
        let tried = report.attempted.commands.iter();
        let denied = tried.filter(|one| !one.allowed).count();
        if watched {
            assert!(denied > 0, "{way}: {:?}", report.attempted.commands);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_leads_to_a_denied_program_on_runc() {
    no_way_leads_to_a_denied_program("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_leads_to_a_denied_program_on_gvisor() {
    no_way_leads_to_a_denied_program("gvisor").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_installed_is_denied_and_recorded_with_its_line() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    for runtime in ["runc", "crun"] {
        if Engine::with(
            runtime,
            &format!("programs that are not installed on {runtime}"),
        )
        .is_none()
        {
            continue;
        }
        let config = under(engine.config(runtime), DENIED);
        let code = "import os, sys\n\nsys.exit(os.system('az account list') >> 8)\n";
        let report = run(&backend, config, Request::code(Language::Python, code)).await;
        let outcome = report.outcome.as_ref().expect("an outcome");
        assert_eq!(outcome.exit_code, 126, "{runtime}: {outcome:?}");
        let stderr = String::from_utf8_lossy(&outcome.stderr.bytes);
        assert!(stderr.contains("az: command denied by policy"), "{stderr}");
        let mut commands = report.attempted.commands.iter();
        let az = commands
            .find(|one| one.program == "az")
            .expect("az is on record");
        assert!(!az.allowed);
        assert_eq!(az.code, "command.denied");
        assert_eq!(az.arguments, ["az", "account", "list"]);
        assert_eq!(az.caller.as_deref(), Some("code.py:3"));
        assert_eq!(az.path, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stand_ins_cannot_be_removed() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let config = under(engine.config("runc"), DENIED);
    let script = "rm -f /usr/bin/curl /.brig/names/az /.brig/shim 2>/dev/null
        mv /usr/bin/curl /tmp/c 2>/dev/null; (: > /usr/bin/curl) 2>/dev/null
        ls /.brig/names; curl -V; echo $?";
    let report = run(&backend, config, sh(script)).await;
    assert_eq!(text(&report), "az\ncurl\n126\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allowlist_is_refused_where_nothing_holds_it() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let config = under(
        engine.config("runc"),
        "name: x\ndefaults: {action: allow}\ncommand_allowlist: [python3]\n",
    );
    let controls = backend.controls_for(&config);
    if controls.strength(Control::CommandAllow) == Strength::Enforced {
        brig_testing::skip("an allowlist that nothing holds", "AppArmor holds it here");
        return;
    }
    let sandbox = Sandbox::builder(backend).build().expect("sandbox");
    let agent: AgentId = "agent".parse().expect("name");
    let refused = sandbox.run_once(&agent, config, sh("true")).await;
    let problem = refused.expect_err("refused").to_string();
    assert!(problem.contains("command-allow"), "{problem}");
}
