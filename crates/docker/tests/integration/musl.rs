//! An image whose Python is linked against musl: another loader, another resolver, other system calls.
//! `scripts/lib/musl-python` makes it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Engine, with_option};
use brig_docker::DockerBackend;
use brig_egress::{Layer, LayerKind, Rule};
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{
    AgentId, Control, KillReason, Language, NetworkConfig, Outcome, Report, Request, Sandbox,
    SessionConfig,
};
use brig_testing::Server;

struct Musl {
    engine: Engine,
    backend: Arc<DockerBackend>,
    config: SessionConfig,
}

impl Musl {
    async fn find(runtime: &str) -> Option<Self> {
        let test = format!("a Python of musl on {runtime}");
        let engine = Engine::with(runtime, &test)?;
        let given = std::env::var("BRIG_TEST_MUSL_IMAGE").ok();
        let Some(image) = given.filter(|name| !name.is_empty()) else {
            brig_testing::skip(
                &test,
                "no image with it was made (scripts/test does, as root)",
            );
            return None;
        };
        let config = with_option(engine.config(runtime), "image", image);
        let backend = engine.backend().await;
        Some(Self {
            engine,
            backend,
            config,
        })
    }

    fn sandbox(&self) -> (Sandbox, AgentId) {
        let sandbox = Sandbox::builder(self.backend.clone()).build();
        (sandbox.expect("sandbox"), "agent".parse().expect("name"))
    }

    async fn run(&self, config: SessionConfig, code: &str) -> Report {
        let (sandbox, agent) = self.sandbox();
        let request = Request::code(Language::Python, code);
        let report = sandbox.run_once(&agent, config, request).await;
        report.expect("a report")
    }
}

fn outcome(report: &Report) -> &Outcome {
    &report.outcome
}

fn text(report: &Report) -> String {
    let outcome = outcome(report);
    let both = [&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

const LIBRARY: &str = "
import sys
loader = open(sys.executable, 'rb').read(4096).partition(b'/ld-')[2][:4]
print(sys.version_info[0], loader, 'libc.so.6' in open('/proc/self/maps').read())
";

/// What musl does in its own way: threads, children, names of users, memory.
const DAILY: &str = "
import asyncio, concurrent.futures, math, mmap, os, select, socket, subprocess, sys, tempfile, threading
def deep(n):
    return n and 1 + deep(n - 1)
async def child():
    started = await asyncio.create_subprocess_exec('tool', stdout=subprocess.PIPE)
    return (await started.communicate())[0]
def forked():
    child = os.fork()
    return os.waitpid(child, 0)[1] >> 8 if child else os._exit(5)
with concurrent.futures.ThreadPoolExecutor(4) as threads:
    assert list(threads.map(deep, [900] * 8)) == [900] * 8
assert os.system('exit 3') >> 8 == 3
assert os.popen('echo piped').read() == 'piped\\n'
assert os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 4'], {}), 0)[1] >> 8 == 4
assert forked() == 5
assert subprocess.run(['tool'], capture_output=True).stdout == b'the tool ran\\n'
assert asyncio.run(child()) == b'the tool ran\\n'
assert tempfile.TemporaryFile().write(b'x' * 70000) == 70000
assert len(mmap.mmap(-1, 1 << 24)) == 1 << 24
assert select.epoll().fileno() > 2 and len(os.urandom(8)) == 8 and math.isqrt(81) == 9
assert socket.getaddrinfo('localhost', 80)
assert os.path.expanduser('~') == '/workspace' and os.getuid() == 65534
print('all of it')
";

async fn a_python_of_musl_works(runtime: &str) {
    let Some(musl) = Musl::find(runtime).await else {
        return;
    };
    let report = musl.run(musl.config.clone(), LIBRARY).await;
    assert_eq!(text(&report), "3 b'musl' False\n");
    let other = musl.run(musl.engine.config(runtime), LIBRARY).await;
    assert_eq!(text(&other), "3 b'linu' True\n", "control");
    let report = musl.run(musl.config.clone(), DAILY).await;
    assert_eq!(text(&report), "all of it\n");
}

const DENIED: &str = "
name: deny
defaults: {action: allow}
command_denylist: [tool, az]
";

/// Says after each line that tries a program how that ended.
const TRIES: &str = "import glob, os, subprocess
print(os.system('tool') >> 8)
print(subprocess.run(['/usr/bin/tool']).returncode)
print(os.system('az account list') >> 8)
loader = glob.glob('/lib/ld-musl-*')[0]
try: print(subprocess.run([loader, '/usr/bin/tool', 'loaded']).returncode != 0)
except PermissionError: print(True)
";

async fn a_denied_command_is_stopped(runtime: &str) {
    let Some(musl) = Musl::find(runtime).await else {
        return;
    };
    let free = text(&musl.run(musl.config.clone(), TRIES).await);
    assert_eq!(free.matches("the tool ran").count(), 3, "control: {free}");
    let mut held = musl.config.clone();
    if runtime == "gvisor" {
        held.waive.insert(Control::CommandRecord);
    }
    let loaded = Document::load("p.yaml", DENIED, Compat::Strict).expect("a policy");
    let policies = PolicySet::new(vec![loaded.document]);
    let held = held.under(Arc::new(policies)).expect("valid");
    let report = musl.run(held, TRIES).await;
    let said = String::from_utf8_lossy(&outcome(&report).stdout.bytes);
    assert_eq!(said, "126\n126\n126\nTrue\n", "{}", text(&report));
    if runtime == "gvisor" {
        return;
    }
    let commands = &report.attempted.commands;
    for (name, line) in [
        ("tool", "code.py:2"),
        ("/usr/bin/tool", "code.py:3"),
        ("az", "code.py:4"),
    ] {
        let on_record = commands
            .iter()
            .any(|one| !one.allowed && one.program == name && one.caller.as_deref() == Some(line));
        assert!(on_record, "{name} in {line}: {commands:?}");
    }
    let loaded = commands
        .iter()
        .find(|one| one.arguments.last().is_some_and(|word| word == "loaded"));
    let loaded = loaded.map(|one| (one.code.as_str(), one.rule.as_deref()));
    assert_eq!(
        loaded,
        Some(("command.denied", Some("tool"))),
        "{commands:?}"
    );
}

async fn only_allowed_hosts_are_reached(runtime: &str) {
    let Some(musl) = Musl::find(runtime).await else {
        return;
    };
    let server = Server::start();
    let port = server.port;
    // The dot keeps the name from being found in a file: musl has to ask for it.
    let code = format!(
        "import socket, urllib.request
with socket.create_connection(('localhost.', {port}), 30) as s:
    s.sendall(b'GET /plain HTTP/1.0\\r\\n\\r\\n')
    print(s.makefile().read().split()[-2])
print(urllib.request.urlopen('http://localhost.:{port}/proxy').read().split()[-2])"
    );
    let allowing = |rules: &[String]| {
        let rules = rules.iter().map(|rule| Rule::parse(rule).expect("a rule"));
        let layers = vec![Layer::new(LayerKind::Run).allow(rules)];
        SessionConfig {
            network: NetworkConfig {
                open: false,
                layers,
            },
            ..musl.config.clone()
        }
    };
    let rules = [format!("localhost.:{port}"), format!("127.0.0.1:{port}")];
    let report = musl.run(allowing(&rules), &code).await;
    assert_eq!(text(&report), "/plain\nb'/proxy'\n");
    assert_eq!(server.asked(), 2);
    let reached = |allowed: bool, report: &Report| {
        let mut tried = report.attempted.egress.iter();
        tried.any(|one| one.allowed == allowed && one.host.trim_end_matches('.') == "localhost")
    };
    assert!(reached(true, &report), "{:?}", report.attempted.egress);

    let report = musl.run(allowing(&["other.invalid".into()]), &code).await;
    assert!(text(&report).contains("gaierror"), "{}", text(&report));
    assert!(reached(false, &report), "{:?}", report.attempted.egress);

    let report = musl.run(musl.config.clone(), &code).await;
    assert!(text(&report).contains("gaierror"), "{}", text(&report));
    assert_eq!(server.asked(), 2, "nobody else came through");
}

/// musl would wait five seconds for each name.
const NAMES: &str = "
import socket, time
def lookup():
    began = time.monotonic()
    try:
        print(socket.getaddrinfo('nowhere.invalid', 80))
    except socket.gaierror:
        return time.monotonic() - began
print('at once' if min(lookup() for _ in range(3)) < 4.9 else 'late')
";

async fn without_a_network_no_name_is_waited_for(runtime: &str) {
    let Some(musl) = Musl::find(runtime).await else {
        return;
    };
    let report = musl.run(musl.config.clone(), NAMES).await;
    assert_eq!(text(&report), "at once\n");
}

const ENDLESS: &str = "
import subprocess
open('kept', 'w').write('here')
subprocess.Popen(['sh', '-c', 'while :; do :; done'])
print('began', flush=True)
while True: pass
";

const LEFT: &str = "
import glob
lines = []
for file in glob.glob('/proc/[0-9]*/cmdline'):
    try:
        lines.append(open(file).read())
    except OSError:
        pass  # It has ended.
print(open('kept').read(), len(lines) > 1, any('while' in line for line in lines))
";

async fn a_session_outlives_a_timeout(runtime: &str) {
    let Some(musl) = Musl::find(runtime).await else {
        return;
    };
    let (sandbox, agent) = musl.sandbox();
    let session = sandbox.create_session(&agent, None, musl.config.clone());
    let session = session.await.expect("a session");
    let mut limit_ms = 4000;
    let report = loop {
        let mut endless = Request::code(Language::Python, ENDLESS);
        endless.timeout = Some(Duration::from_millis(limit_ms));
        let report = session.start(endless).await.expect("it starts").wait();
        let report = report.await.expect("a report");
        // A machine may be too slow for it to have begun.
        if !text(&report).is_empty() || limit_ms > 30_000 {
            break report;
        }
        limit_ms *= 2;
    };
    assert_eq!(text(&report), "began\n");
    let killed = outcome(&report).killed.clone();
    assert_eq!(killed, Some(KillReason::Timeout { limit_ms }));
    let left = Request::code(Language::Python, LEFT);
    let report = session.start(left).await.expect("it starts").wait();
    let report = report.await.expect("a report");
    assert_eq!(text(&report), "here True False\n");
    session.destroy().await.expect("an end");
}

macro_rules! on {
    ($runtime:ident: $($scenario:ident)*) => {
        mod $runtime {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(stringify!($runtime)).await;
            })*
        }
    };
    ($($runtime:ident),*) => {
        $(on! {
            $runtime:
            a_python_of_musl_works
            a_denied_command_is_stopped
            only_allowed_hosts_are_reached
            without_a_network_no_name_is_waited_for
            a_session_outlives_a_timeout
        })*
    };
}

on!(runc, gvisor);
