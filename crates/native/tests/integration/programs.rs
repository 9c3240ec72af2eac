//! Real programs, as they are installed, through the way out of a sandbox: they need no
//! configuration to reach what is allowed, and are denied the rest. The server is on this machine's
//! loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brig_egress::{Layer, LayerKind, Rule};
use brig_native::NativeBackend;
use brig_sandbox::config::MIB;
use brig_sandbox::{
    AgentId, Language, Limit, NetworkConfig, Report, Request, Sandbox, SessionConfig,
};

/// Serves the files of a folder, and counts who asks.
struct Server {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, folder) = (Arc::clone(&asked), folder.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (folder, mut stream) = (folder.clone(), stream.unwrap());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let first = lines.next().and_then(Result::ok).unwrap_or_default();
                    lines.map_while(Result::ok).find(String::is_empty);
                    let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
                    let path = path.split('?').next().unwrap().trim_matches('/').to_owned();
                    let found = [folder.join(&path), folder.join(&path).join("index.html")]
                        .into_iter()
                        .find_map(|file| std::fs::read(file).ok());
                    let (status, body) = match found {
                        Some(body) => ("200 OK", body),
                        None => ("404 Not Found", Vec::new()),
                    };
                    let head = format!(
                        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(&[head.into_bytes(), body].concat());
                });
            }
        });
        Self { port, asked }
    }
}

/// What the programs ask for: a page, a repository, a Python package, a package of npm.
fn site(folder: &Path) {
    std::fs::write(folder.join("page"), "a page\n").unwrap();
    std::fs::create_dir(folder.join("npm")).unwrap();
    std::fs::write(
        folder.join("npm/demo"),
        r#"{"name":"demo","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"demo","version":"1.2.3","dist":{}}}}"#,
    )
    .unwrap();
    let script = "set -e
        git init -q work && cd work && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x
        cd .. && git clone -q --bare work repo.git && cd repo.git && git update-server-info";
    host(folder, Command::new("sh").args(["-c", script]));
    let wheel = "import os, zipfile
os.makedirs('simple/demo')
name = 'demo-1.2.3-py3-none-any.whl'
with zipfile.ZipFile('simple/demo/' + name, 'w') as wheel:
    wheel.writestr('demo.py', '')
    info = 'demo-1.2.3.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.2.3\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
open('simple/demo/index.html', 'w').write('<!DOCTYPE html><a href=\"' + name + '\">' + name + '</a>')";
    host(folder, Command::new("/usr/bin/python3").args(["-c", wheel]));
}

fn host(folder: &Path, command: &mut Command) {
    let done = command
        .current_dir(folder)
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

struct Program {
    needs: &'static str,
    request: Request,
    says: &'static str,
}

fn programs(port: u16) -> Vec<Program> {
    let site = format!("http://localhost.:{port}");
    let shell = |needs, script: String, says| Program {
        needs,
        request: Request::command(["sh", "-c", &script]),
        says,
    };
    let unset = "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY;";
    vec![
        shell("curl", format!("curl -sSf -m 60 {site}/page"), "a page"),
        shell(
            "curl",
            format!("curl -sSf -m 60 --socks5-hostname 127.0.0.1:3128 --noproxy '' {site}/page"),
            "a page",
        ),
        shell(
            "curl",
            format!("{unset} curl -sSf -m 60 {site}/page"),
            "a page",
        ),
        shell(
            "wget",
            format!("wget -q -t 1 -T 60 -O - {site}/page"),
            "a page",
        ),
        shell(
            "git",
            format!("git ls-remote {site}/repo.git"),
            "refs/heads/",
        ),
        shell(
            "pip3",
            format!(
                "python3 -m pip download -q --no-cache-dir --no-deps --retries 0 --trusted-host localhost. \
                 --index-url {site}/simple/ demo && ls"
            ),
            "demo-1.2.3-py3-none-any.whl",
        ),
        shell(
            "npm",
            format!("npm view demo version --registry {site}/npm/ --fetch-retries 0"),
            "1.2.3",
        ),
        Program {
            needs: "python3",
            request: Request::code(
                Language::Python,
                format!("import urllib.request as u\nprint(u.urlopen('{site}/page').read())"),
            ),
            says: "a page",
        },
        Program {
            needs: "../lib/python3/dist-packages/requests",
            request: Request::code(
                Language::Python,
                format!(
                    "import requests\nr = requests.get('{site}/page')\nprint(r.text)\nr.raise_for_status()"
                ),
            ),
            says: "a page",
        },
        // Knows nothing of proxies.
        Program {
            needs: "node",
            request: Request::code(
                Language::Node,
                format!(
                    "fetch('{site}/page').then(r => r.text()).then(t => console.log(t), e => {{ console.log(e); process.exit(1) }})"
                ),
            ),
            says: "a page",
        },
    ]
}

fn config(rules: &[String]) -> SessionConfig {
    let rules = rules.iter().map(|rule| Rule::parse(rule).unwrap());
    let mut config = SessionConfig {
        network: NetworkConfig {
            open: false,
            layers: vec![Layer::new(LayerKind::Run).allow(rules)],
        },
        ..SessionConfig::default()
    };
    config.limits.timeout = Limit::default_of(Duration::from_secs(300));
    config.limits.memory_bytes = Limit::default_of(2048 * MIB);
    config
}

async fn run(rules: &[String], request: Request) -> (Report, String) {
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "programs".parse().unwrap();
    let config = config(rules);
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let outcome = &report.outcome;
    let both = [&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    (report, text)
}

fn is_there(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        brig_testing::skip(
            "programs and the network",
            &format!("no {program} in /usr/bin"),
        );
    }
    there
}

#[tokio::test]
async fn real_programs_reach_what_is_allowed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root: PathBuf = folder.path().to_owned();
    site(&root);
    let server = Server::start(&root);
    let port = server.port;
    let allowed = [format!("localhost.:{port}"), format!("127.0.0.1:{port}")];
    // The port has a listener, so that the denial is the gateway's.
    let denied = [format!("elsewhere.invalid:{port}")];
    for (allow, deny) in programs(port).into_iter().zip(programs(port)) {
        if !is_there(allow.needs) {
            continue;
        }
        let what = format!("{} {:?}", allow.needs, allow.says);
        let (report, text) = run(&allowed, allow.request).await;
        let outcome = &report.outcome;
        assert_eq!(outcome.exit_code, 0, "{what}: {text}");
        assert!(text.contains(allow.says), "{what}: {text}");
        let before = server.asked.load(Ordering::SeqCst);
        let (report, text) = run(&denied, deny.request).await;
        assert_ne!(report.outcome.exit_code, 0, "{what}: {text}");
        assert!(!text.contains(deny.says), "{what}: {text}");
        let egress = &report.attempted.egress;
        assert!(egress.iter().any(|one| !one.allowed), "{what}: {egress:?}");
        assert_eq!(server.asked.load(Ordering::SeqCst), before, "{what}");
    }
}

/// It looks a denied host up three times if something unset its proxy variables, and waits in between.
#[tokio::test]
async fn npm_does_not_wait_for_a_minute_before_it_fails() {
    if !is_there("npm") {
        return;
    }
    let shown = "npm config get fetch-retry-mintimeout; npm config get fetch-retry-maxtimeout";
    let request = Request::command(["sh", "-c", shown]);
    let (_, text) = run(&["elsewhere.invalid".to_owned()], request).await;
    assert_eq!(text, "1000\n5000\n");
}
