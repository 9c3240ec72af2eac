//! Commands that can't be run in a container, and the record of those that were tried.

use std::sync::Arc;
use std::time::Duration;

use crate::common::Engine;
use brig_docker::DockerBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{
    AgentId, Backend, Control, Language, Limit, Report, Request, Sandbox, SessionConfig, Strength,
};

const DENIED: &str = "
name: deny
defaults: {action: allow}
command_denylist: [curl, az]
";

fn under(config: SessionConfig, text: &str) -> SessionConfig {
    let loaded = Document::load("p.yaml", text, Compat::Strict).expect("a policy");
    let policies = PolicySet::new(vec![loaded.document]);
    config.under(Arc::new(policies)).expect("valid")
}

async fn run(backend: &Arc<DockerBackend>, config: SessionConfig, request: Request) -> Report {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let agent: AgentId = "agent".parse().expect("name");
    let run = sandbox.run_once(&agent, config, request).await;
    run.expect("a report")
}

fn text(report: &Report) -> String {
    let outcome = &report.outcome;
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

fn sh(script: &str) -> Request {
    Request::command(["/bin/sh", "-c", script])
}

/// Ways to a program.
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

/// A script that tries these ways and prints those that lead to the program.
fn tries(ways: &[&str]) -> Request {
    let line = |way: &&str| {
        let quoted = way.replace('\'', r"'\''");
        format!("({way}) 2>/dev/null | grep -q '^curl ' && echo '{quoted}'\n")
    };
    let lines: String = ways.iter().map(line).collect();
    sh(&format!("{lines}exit 0"))
}

/// The ways that a report names.
fn led(report: &Report) -> Vec<String> {
    let outcome = &report.outcome;
    assert_eq!(outcome.exit_code, 0, "{outcome:?}");
    text(report).lines().map(str::to_owned).collect()
}

/// All ways in one container: a start is slow on gVisor.
async fn no_way_leads_to_a_denied_program(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("denied programs on {runtime}")) else {
        return;
    };
    let backend = engine.backend().await;
    let watched = runtime != "gvisor";
    let mut free = engine.config(runtime);
    free.limits.timeout = Limit::default_of(Duration::from_secs(300));
    let mut held = free.clone();
    if !watched {
        held.waive.insert(Control::CommandRecord);
    }
    let held = under(held, DENIED);
    let control = run(&backend, free, tries(&WAYS)).await;
    assert_eq!(led(&control), WAYS, "the control: {:?}", control.outcome);
    let all = run(&backend, held.clone(), tries(&WAYS)).await;
    assert_eq!(led(&all), [""; 0], "{:?}", all.outcome);
    // Each way is on record, which only a run of its own can show.
    for way in WAYS.iter().filter(|_| watched) {
        let report = run(&backend, held.clone(), tries(&[way])).await;
        assert_eq!(led(&report), [""; 0], "{way}");
        let mut tried = report.attempted.commands.iter();
        assert!(
            tried.any(|one| !one.allowed),
            "{way}: {:?}",
            report.attempted.commands
        );
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
        let outcome = &report.outcome;
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
    let controls = backend
        .probe(&config)
        .await
        .expect("it can be used")
        .controls;
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

/// By a path, a name, and links that mean something else to whoever follows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_file_that_is_made_later_does_not_start() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let policy = "name: deny\ndefaults: {action: allow}\n\
        command_denylist: [/tmp/made, brig-named]\n";
    let script =
        "cp /bin/echo /tmp/made; cp /bin/echo /workspace/brig-named; cp /bin/echo /tmp/other
        ln -s /proc/self/root/tmp/made /tmp/link; exec 5</tmp/made
        /tmp/made 1; cd /tmp; ./made 2; /workspace/brig-named 3; /tmp/link 4; /proc/self/fd/5 5
        /tmp/other 6; exit 0";
    for runtime in ["runc", "crun"] {
        let why = format!("files that are made later on {runtime}");
        if Engine::with(runtime, &why).is_none() {
            continue;
        }
        let free = run(&backend, engine.config(runtime), sh(script)).await;
        assert_eq!(text(&free), "1\n2\n3\n4\n5\n6\n", "{runtime}: the control");
        let config = under(engine.config(runtime), policy);
        let report = run(&backend, config, sh(script)).await;
        assert_eq!(text(&report), "6\n", "{runtime}");
        for number in 1..=6 {
            let number = number.to_string();
            let all = report.attempted.commands.iter();
            let tried: Vec<_> = all
                .filter(|one| one.arguments.last() == Some(&number))
                .collect();
            let [one] = tried.as_slice() else {
                panic!("{runtime}: {number}: {tried:?}")
            };
            let code = if number == "6" {
                "command.allowed"
            } else {
                "command.denied"
            };
            assert_eq!(one.code, code, "{runtime}: {number}");
        }
    }
}

/// What the kernel does not start is not on record as started, and no filter hides what it starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_did_not_start_is_recorded_as_that() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let code = "import ctypes\nLIBC = ctypes.CDLL(None, use_errno=True)\n\
        def words(*texts):\n    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)\n\
        LIBC.execve(b'/bin/true', words(b'x', b'fails'), ctypes.c_void_p(8))\n\
        LIBC.execve(b'/bin/true', words(b'x', b'fails too'), ctypes.c_void_p(8))\n\
        print(LIBC.syscall(317, 1, 0, None), ctypes.get_errno())\n\
        print(LIBC.prctl(22, 2, None, 0, 0), ctypes.get_errno(), flush=True)\n\
        LIBC.execve(b'/bin/true', words(b'x', b'works'), words())\n";
    for runtime in ["runc", "crun"] {
        let why = format!("programs that do not start on {runtime}");
        if Engine::with(runtime, &why).is_none() {
            continue;
        }
        let config = under(engine.config(runtime), DENIED);
        let report = run(&backend, config, Request::code(Language::Python, code)).await;
        // A kernel that had filters would look at the program, which is at no address.
        assert_eq!(text(&report), "-1 22\n-1 22\n", "{runtime}");
        let codes = |mark: &str| -> Vec<&str> {
            let all = report.attempted.commands.iter();
            let marked = all.filter(|one| one.arguments.last().is_some_and(|last| last == mark));
            marked.map(|one| one.code.as_str()).collect()
        };
        assert_eq!(codes("fails"), ["command.failed"], "{runtime}");
        assert_eq!(codes("fails too"), ["command.failed"], "{runtime}");
        assert_eq!(codes("works"), ["command.allowed"], "{runtime}");
    }
}

/// A loader runs the file that it is told to, whoever starts it and however long its words are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loader_does_not_run_a_denied_file() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let policy = "name: deny\ndefaults: {action: allow}\n\
        command_denylist: [/tmp/made, brig-named, uname]\n";
    let script = "ld=/lib64/ld-linux-x86-64.so.2
        cp /bin/echo /tmp/made; cp /bin/echo /workspace/brig-named; cp /bin/echo /tmp/other
        $ld /tmp/made 1
        $ld --argv0 x /workspace/brig-named 2
        printf \"#!$ld /tmp/made\\n\" > /tmp/script; chmod +x /tmp/script; /tmp/script 3
        $ld --argv0 4 $(yes -- --inhibit-cache | head -80) /tmp/made 4
        $ld --argv0 5 $(printf '/.%.0s' $(seq 1000))/tmp/made 5
        $ld /usr/bin/uname -s
        cd /tmp; $ld made 7; $ld libc.so.6 | head -c 5
        $ld /tmp/other 8; exit 0";
    for runtime in ["runc", "crun"] {
        let why = format!("loaders of denied files on {runtime}");
        if Engine::with(runtime, &why).is_none() {
            continue;
        }
        let bash = || Request::command(["bash", "-c", script]);
        let free = run(&backend, engine.config(runtime), bash()).await;
        let all = text(&free);
        for line in ["1", "2", "/tmp/script 3", "4", "5", "Linux", "GNU C8"] {
            assert!(
                all.lines().any(|one| one == line),
                "the control: {line}: {all}"
            );
        }
        let report = run(&backend, under(engine.config(runtime), policy), bash()).await;
        assert_eq!(text(&report), "8\n", "{runtime}");
        for (word, rule) in [
            ("1", Some("/tmp/made")),
            ("2", Some("brig-named")),
            ("3", Some("/tmp/made")),
            ("4", Some("/tmp/made")),
            ("5", Some("/tmp/made")),
            ("-s", Some("uname")),
            ("7", Some("/tmp/made")),
            // It looks for a bare name among libraries, and nobody knows where that leads.
            ("libc.so.6", None),
        ] {
            let all = report.attempted.commands.iter();
            let mut tried = all.filter(|one| one.arguments.iter().any(|other| other == word));
            let one = tried.next().expect("on record");
            assert_eq!(one.code, "command.denied", "{runtime}: {one:?}");
            assert_eq!(one.rule.as_deref(), rule, "{runtime}: {one:?}");
        }
    }
}

/// By the first line of a script, by a copy of the loader. And what looks
/// like a start is none, nor is what nobody can read.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leads_to_a_denied_file_does_not_start() {
    let Some(engine) = Engine::find("docker commands") else {
        return;
    };
    let backend = engine.backend().await;
    let code = concat!(
        "LOADER = '/lib64/ld-linux-x86-64.so.2'\n",
        include_str!("../../../attacks/probes/starts.py"),
        "print('nowhere', LIBC.execve(ctypes.c_void_p(8), None, None), ctypes.get_errno())\n",
    );
    let policy = |name: &str| {
        format!("name: deny\ndefaults: {{action: allow}}\ncommand_denylist: [{name}]\n")
    };
    for runtime in ["runc", "crun"] {
        if Engine::with(runtime, &format!("denied files by others on {runtime}")).is_none() {
            continue;
        }
        let request = || Request::code(Language::Python, code);
        let free = under(engine.config(runtime), &policy("brig-none"));
        let free = text(&run(&backend, free, request()).await);
        let held = under(engine.config(runtime), &policy("brig-made"));
        let report = run(&backend, held, request()).await;
        let held = text(&report);
        for (runs, refused) in [
            ("static 0", "static PermissionError"),
            ("nested True", "nested False"),
            ("script ran", "script PermissionError"),
            ("scripts ran", "scripts PermissionError"),
            ("loader ran", "loader PermissionError"),
            ("loader-of-script /tmp/by-loader", "loader-of-script -9"),
            ("storage 0", "storage 0"),
            ("nowhere -1 14", "nowhere -1 14"),
        ] {
            let has = |text: &str, line: &str| text.lines().any(|one| one == line);
            assert!(has(&free, runs), "{runtime}: the control: {runs}: {free}");
            assert!(has(&held, refused), "{runtime}: {refused}: {held}");
        }
        let codes = |word: &str| -> Vec<&str> {
            let all = report.attempted.commands.iter();
            let found = all.filter(|one| one.arguments.iter().any(|other| other == word));
            found.map(|one| one.code.as_str()).collect()
        };
        assert_eq!(codes("forged"), [""; 0], "{runtime}");
        assert_eq!(codes("real-start"), ["command.allowed"], "{runtime}");
        assert_eq!(codes("failed-start"), ["command.failed"], "{runtime}");
        assert_eq!(
            codes("code.py"),
            ["command.allowed"],
            "{runtime}: the program itself"
        );
    }
}
