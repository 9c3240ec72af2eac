//! Variables that must not get in (attack 23).

use std::ffi::OsString;

use brig_sandbox::SessionConfig;
use serde_json::json;

use crate::owner::{self, Task};
use crate::target::{AttackTarget, request};
use crate::{fence::Fence, probe};

#[macro_export]
macro_rules! environment {
    ($target:path) => {
        $crate::attacks!($target, environment:
            the_callers_environment_stays_outside,
            loader_and_interpreter_variables_are_refused,
            a_library_named_by_the_caller_is_not_loaded,
        );
    };
}

const SECRETS: [(&str, &str); 12] = [
    ("AWS_SECRET_ACCESS_KEY", "x"),
    ("AWS_SESSION_TOKEN", "x"),
    ("GITHUB_TOKEN", "x"),
    ("NPM_TOKEN", "x"),
    ("SSH_AUTH_SOCK", "/tmp/agent"),
    ("GPG_AGENT_INFO", "/tmp/agent"),
    ("DOCKER_HOST", "unix:///var/run/docker.sock"),
    ("KUBECONFIG", "/root/.kube/config"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
    ("XDG_RUNTIME_DIR", "/run/user/0"),
    ("BRIG_ATTACK_ANY", "x"),
    ("HTTPS_PROXY", "http://127.0.0.1:1"),
];

const REFUSED: [&str; 30] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_DEBUG",
    "LD_PROFILE",
    "LD_SHOW_AUXV",
    "LD_DYNAMIC_WEAK",
    "LD_SOMETHING_NEW",
    "ld_preload",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONUSERBASE",
    "NODE_OPTIONS",
    "BUN_OPTIONS",
    "RUBYOPT",
    "PERL5LIB",
    "PERL5OPT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "IFS",
    "PROMPT_COMMAND",
    "BASH_FUNC_ls%%",
    "PYTHONBREAKPOINT",
    "PS4",
];

/// The variables of the process that owns the sandbox.
pub async fn the_callers_environment_stays_outside(target: &AttackTarget) {
    let names: Vec<&str> = SECRETS.iter().map(|(name, _)| *name).collect();
    let args = json!({"names": names});
    let set = SECRETS
        .iter()
        .map(|(name, value)| OsString::from(format!("{name}={value}")));
    let control = Fence::plain().through([OsString::from("env")].into_iter().chain(set));
    let mut control = control.run(&probe!("environment"), &args).whole();

    let task = Task::run(
        target.config(SessionConfig::default()),
        &probe!("environment"),
        &args,
    );
    let answer = owner::run(&target.owner, &[], &task, &SECRETS);
    assert_eq!(answer.error, None, "{answer:?}");
    let mut inside = answer.attempts().whole();
    for attempts in [&mut control, &mut inside] {
        attempts.forget("all");
    }
    inside.assert_held(&control);
}

/// Variables that the caller names himself, for the session and for one execution.
pub async fn loader_and_interpreter_variables_are_refused(target: &AttackTarget) {
    let good = ("GREETING".to_owned(), "hello".to_owned());
    for name in REFUSED {
        let bad = (name.to_owned(), "/tmp/evil".to_owned());
        let args = json!({"names": [name, "GREETING"]});
        let with_session = SessionConfig {
            env: vec![good.clone(), bad.clone()],
            ..SessionConfig::default()
        };
        if let Ok(report) = target
            .report(with_session, &probe!("environment"), &args)
            .await
        {
            let seen = crate::target::attempts(&report).whole();
            assert!(!seen.ok(name), "{name} of the session arrived");
            assert!(
                seen.ok("GREETING"),
                "the harmless one beside {name} must arrive"
            );
        }
        let session = target.session(SessionConfig::default()).await;
        let mut asked = request(&probe!("environment"), &args);
        asked.env = vec![good.clone(), bad];
        if let Ok(running) = session.start(asked).await {
            let seen = crate::target::attempts(&running.wait().await.unwrap()).whole();
            assert!(!seen.ok(name), "{name} of the request arrived");
            assert!(
                seen.ok("GREETING"),
                "the harmless one beside {name} must arrive"
            );
        }
        session.destroy().await.unwrap();
    }
    let harmless = SessionConfig {
        env: vec![good],
        ..SessionConfig::default()
    };
    let args = json!({"names": ["GREETING"]});
    target
        .run_with(harmless, &probe!("environment"), &args)
        .await
        .assert_all_worked();
}

/// What the filter is for: a library that would run in every program.
pub async fn a_library_named_by_the_caller_is_not_loaded(target: &AttackTarget) {
    let missing = "/nonexistent/evil.so";
    // The loader complains about a library that it was told to load and cannot find.
    let outside = crate::fence::bounded(10, ["/bin/true".into()])
        .env("LD_PRELOAD", missing)
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&outside.stderr).contains("evil.so"),
        "the loader listens"
    );

    let env = vec![("LD_PRELOAD".to_owned(), missing.to_owned())];
    let config = SessionConfig {
        env,
        ..SessionConfig::default()
    };
    let asked = brig_sandbox::Request::command(["/bin/true"]);
    if let Ok(report) = target
        .sandbox
        .run_once(&crate::target::agent(), config, asked)
        .await
    {
        let outcome = report.outcome;
        assert!(!String::from_utf8_lossy(&outcome.stderr.bytes).contains("evil.so"));
    }
}
