//! The way out of a container, with real programs. Servers live on this machine's loopback and are
//! reached by rules that name it; no name that is asked for here exists anywhere.

use std::sync::Arc;

use crate::common::Engine;
use brig_docker::DockerBackend;
use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::{AgentId, Language, NetworkConfig, Report, Request, Sandbox, SessionConfig};
use brig_testing::Server;

/// More than any window on the way.
const MUCH: usize = 3 * 1024 * 1024;

fn allowing(mut config: SessionConfig, rules: &[String]) -> SessionConfig {
    let rules = rules.iter().map(|rule| Rule::parse(rule).expect("a rule"));
    config.network = NetworkConfig {
        open: false,
        layers: vec![Layer::new(LayerKind::Run).allow(rules)],
    };
    config
}

async fn run(
    backend: &Arc<DockerBackend>,
    config: SessionConfig,
    request: Request,
) -> (Report, String) {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let agent: AgentId = "network".parse().expect("name");
    let report = sandbox.run_once(&agent, config, request).await;
    let report = report.expect("a report");
    let outcome = &report.outcome;
    let both = [&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    (report, text)
}

fn shell(script: &str) -> Request {
    Request::command(["sh", "-c", script])
}

/// Those of the programs that are told of a proxy, and one that knows nothing of it.
fn programs(url: &str) -> Vec<(&'static str, Request)> {
    let python = format!(
        "import urllib.request as u\nt = u.urlopen('{url}').read().decode()\nprint(t[:80].split('x')[0], len(t))"
    );
    let count = "| { head -c 40 | head -n 1; wc -c; }";
    let ignorant =
        format!("unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; curl -sS -m 30 {url} {count}");
    vec![
        ("curl", shell(&format!("curl -sS -m 30 {url} {count}"))),
        ("curl without a proxy", shell(&ignorant)),
        ("python", Request::code(Language::Python, python)),
    ]
}

async fn the_way_out(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("the way out on {runtime}")) else {
        return;
    };
    let backend = engine.backend().await;
    let server = Server::with_text(MUCH);
    let port = server.port;
    // The address that the name leads to needs a rule of its own.
    let rules = [format!("localhost.:{port}"), format!("127.0.0.1:{port}")];
    let url = format!("http://localhost.:{port}/page");
    for (name, request) in programs(&url) {
        let before = server.asked();
        let config = allowing(engine.config(runtime), &rules);
        let (report, text) = run(&backend, config, request).await;
        assert!(
            text.contains("served GET /page"),
            "{runtime} {name}: {text}"
        );
        let most = text
            .split_whitespace()
            .filter_map(|word| word.parse::<usize>().ok());
        assert!(most.max() > Some(MUCH - 100), "{runtime} {name}: {text}");
        assert_eq!(server.asked(), before + 1, "{name}");
        let reached = report.attempted.egress.iter().any(|egress| {
            egress.allowed && egress.port == port && egress.layer.as_deref() == Some("run")
        });
        assert!(reached, "{name}: {:?}", report.attempted.egress);
    }
    let before = server.asked();
    for (name, request) in programs(&url) {
        let config = allowing(engine.config(runtime), &["other.invalid:1".into()]);
        let (report, text) = run(&backend, config, request).await;
        assert!(!text.contains("served GET"), "{runtime} {name}: {text}");
        let denied = report.attempted.egress.iter().any(|egress| !egress.allowed);
        assert!(denied, "{runtime} {name}: {:?}", report.attempted.egress);
    }
    assert_eq!(server.asked(), before, "nobody came through");

    let config = allowing(engine.config(runtime), &["other.invalid".into()]);
    let denied = shell("curl -sS -i -m 20 http://denied.invalid/");
    let (_, text) = run(&backend, config, denied).await;
    assert!(text.contains("x-brig-reason: network.no-rule"), "{text}");

    // Without a rule there is no listener.
    let probe = "exec 3<>/dev/tcp/127.0.0.1/3128 && echo open";
    let request = || Request::command(["bash", "-c", probe]);
    let config = allowing(engine.config(runtime), &["other.invalid".into()]);
    let (_, text) = run(&backend, config, request()).await;
    assert!(text.contains("open"), "control: {text}");
    let (_, text) = run(&backend, engine.config(runtime), request()).await;
    assert!(!text.contains("open"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_out_on_runc() {
    the_way_out("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_out_on_gvisor() {
    the_way_out("gvisor").await;
}

async fn names_without_a_network(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("names without a network on {runtime}"))
    else {
        return;
    };
    // A name that is waited for takes five seconds at least, each time.
    let code = "import socket, time\n\
                took = []\n\
                for _ in range(3):\n\
                \x20   begun = time.monotonic()\n\
                \x20   try: print(socket.getaddrinfo('tried.invalid', 443))\n\
                \x20   except socket.gaierror as e: print(e.errno == socket.EAI_NONAME)\n\
                \x20   took.append(time.monotonic() - begun)\n\
                print('quick', min(took) < 4.9)\n\
                print(socket.getaddrinfo('localhost', 443)[0][4][1])";
    let request = Request::code(Language::Python, code);
    let (report, text) = run(&engine.backend().await, engine.config(runtime), request).await;
    let expected = "True\nTrue\nTrue\nquick True\n443\n";
    assert_eq!(text, expected, "{runtime}");
    let egress = &report.attempted.egress;
    let denied = egress.iter().any(|one| {
        !one.allowed && one.protocol == "dns" && one.host == "tried.invalid" && one.port == 0
    });
    assert!(denied, "{runtime}: {egress:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_without_a_network_on_runc() {
    names_without_a_network("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_without_a_network_on_gvisor() {
    names_without_a_network("gvisor").await;
}

/// What a container's control group counts, whoever waits for whom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_that_nobody_waited_for_is_counted() {
    let Some(engine) = Engine::with("runc", "the time that nobody waited for") else {
        return;
    };
    // The end of the pipe is the end of the child. Nobody waits for the child itself.
    let code = "import os, signal, time\n\
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
                reader, writer = os.pipe()\n\
                if os.fork() == 0:\n\
                \x20   while time.process_time() < 0.7: pass\n\
                \x20   os._exit(0)\n\
                os.close(writer)\n\
                os.read(reader, 1)\n\
                time.sleep(0.5)";
    let request = Request::code(Language::Python, code);
    let (report, text) = run(&engine.backend().await, engine.config("runc"), request).await;
    let cpu = report.outcome.usage.cpu;
    assert!(cpu.as_millis() >= 500, "{cpu:?} {text}");
}
