//! The way out of a sandbox, with real programs. Servers live on this machine's loopback and are
//! reached by rules that name it; no name that is asked for here exists anywhere.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brig_egress::{Layer, LayerKind, Rule};
use brig_native::NativeBackend;
use brig_sandbox::{
    AgentId, Language, Limit, NetworkConfig, Report, Request, Sandbox, SessionConfig,
};
use brig_testing::Server;

fn allow(rules: &[String]) -> SessionConfig {
    let rules = rules.iter().map(|rule| Rule::parse(rule).unwrap());
    SessionConfig {
        network: NetworkConfig {
            open: false,
            layers: vec![Layer::new(LayerKind::Run).allow(rules)],
        },
        ..SessionConfig::default()
    }
}

async fn run(config: SessionConfig, request: Request) -> (Report, String) {
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "network".parse().unwrap();
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
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
    let python = format!("import urllib.request as u\nprint(u.urlopen('{url}').read().decode())");
    let ignorant = format!("unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; curl -sS -m 20 {url}");
    vec![
        ("curl", shell(&format!("curl -sS -m 20 {url}"))),
        ("curl without a proxy", shell(&ignorant)),
        ("python", Request::code(Language::Python, python)),
    ]
}

#[tokio::test]
async fn what_is_allowed_is_reached_and_what_is_not_is_denied() {
    let server = Server::start();
    let port = server.port;
    // The address that the name leads to needs a rule of its own.
    let rules = [format!("localhost.:{port}"), format!("127.0.0.1:{port}")];
    let url = format!("http://localhost.:{port}/page");
    for (name, request) in programs(&url) {
        let before = server.asked();
        let (report, text) = run(allow(&rules), request).await;
        assert!(text.contains("served GET /page"), "{name}: {text}");
        assert_eq!(server.asked(), before + 1, "{name}");
        let reached = report.attempted.egress.iter().any(|egress| {
            egress.allowed && egress.port == port && egress.layer.as_deref() == Some("run")
        });
        assert!(reached, "{name}: {:?}", report.attempted.egress);
    }
    let before = server.asked();
    for (name, request) in programs(&url) {
        let (report, text) = run(allow(&["other.invalid:1".into()]), request).await;
        assert!(!text.contains("served GET"), "{name}: {text}");
        let denied = report.attempted.egress.iter().any(|egress| !egress.allowed);
        assert!(denied, "{name}: {:?}", report.attempted.egress);
    }
    assert_eq!(server.asked(), before, "nobody came through");
}

#[tokio::test]
async fn a_denial_says_what_would_allow_it() {
    let config = allow(&["other.invalid".into()]);
    let (report, text) = run(config, shell("curl -sS -i -m 20 http://denied.invalid/")).await;
    assert!(text.contains("x-brig-reason: network.no-rule"), "{text}");
    assert!(text.contains("brig sandbox allow denied.invalid"), "{text}");
    assert_eq!(report.attempted.egress[0].code, "network.no-rule");
    assert_eq!(report.attempted.egress[0].host, "denied.invalid");
}

#[tokio::test]
async fn without_a_rule_there_is_no_door() {
    let probe = "exec 3<>/dev/tcp/127.0.0.1/3128 && echo open";
    let request = || Request::command(["bash", "-c", probe]);
    let (_, text) = run(allow(&["other.invalid".into()]), request()).await;
    assert!(text.contains("open"), "the control: {text}");
    let (report, text) = run(SessionConfig::default(), request()).await;
    assert!(!text.contains("open"), "{text}");
    assert!(report.attempted.egress.is_empty());
}

/// Nothing but the listeners answers: not the host's loopback, not an address that no name stands for.
#[tokio::test]
async fn nothing_else_leads_out() {
    let server = Server::start();
    let port = server.port;
    let probe = format!(
        "for place in 127.0.0.1/{port} 198.18.0.9/{port} 192.0.2.1/{port}; do \
         timeout 5 bash -c \"exec 3<>/dev/tcp/$place && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3\"; done"
    );
    let request = || Request::command(["bash", "-c", &probe]);
    let named = allow(&[format!("127.0.0.1:{port}")]);
    let (_, text) = run(named, request()).await;
    assert!(text.contains("served GET"), "the control: {text}");
    let before = server.asked();
    let (_, text) = run(allow(&[format!("other.invalid:{port}")]), request()).await;
    assert!(!text.contains("served GET"), "{text}");
    assert_eq!(server.asked(), before);
}

#[tokio::test]
async fn names_are_answered_only_if_they_are_allowed() {
    let script = "getent hosts allowed.invalid; getent hosts a.below.invalid; \
                  getent hosts denied.invalid || echo unknown";
    let config = allow(&["allowed.invalid".into(), "*.below.invalid".into()]);
    let (report, text) = run(config, shell(script)).await;
    assert_eq!(text.matches("198.18.").count(), 2, "{text}");
    assert!(text.contains("unknown"), "{text}");
    assert!(!text.contains("denied.invalid"), "{text}");
    let of = |name: &str| {
        let asked = report.attempted.egress.iter().find(|one| one.host == name);
        asked.map(|one| (one.protocol.as_str(), one.allowed))
    };
    assert_eq!(of("allowed.invalid"), Some(("dns", true)));
    assert_eq!(of("denied.invalid"), Some(("dns", false)));
}

/// The server never closes, so nobody but the end of the program ends the connection.
#[tokio::test]
async fn connections_end_with_what_opened_them_and_are_on_record() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let code = format!(
        "import socket\n\
         s = socket.create_connection(('127.0.0.1', 3128))\n\
         s.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n\
         print(s.recv(100))\n\
         s.sendall(b'\\0hello')"
    );
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "network".parse().unwrap();
    let config = allow(&[format!("127.0.0.1:{port}/tcp")]);
    let session = sandbox.create_session(&agent, None, config).await.unwrap();
    for _ in 0..3 {
        let command = ["python3", "-c", &code].map(Into::into).to_vec();
        let report = session.run(command).await.unwrap();
        let outcome = report.outcome;
        assert!(outcome.stdout.bytes.starts_with(b"b'HTTP/1.1 200"));
        let [egress] = report.attempted.egress.as_slice() else {
            panic!("its own, and no other: {:?}", report.attempted.egress);
        };
        assert!(egress.carried.is_some(), "{egress:?}");
        // Closed as a whole: what is said to nobody is answered by a reset.
        let (mut left, _) = silent.accept().unwrap();
        left.set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        while !matches!(left.read(&mut [0; 64]), Ok(0) | Err(_)) {}
        let began = Instant::now();
        while left.write_all(b"?").is_ok() {
            assert!(began.elapsed() < Duration::from_secs(30), "still open");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    session.destroy().await.unwrap();
}

/// Greets whoever connects, and counts the bytes it hears.
fn greeting() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), count.clone());
            std::thread::spawn(move || {
                let _ = stream.write_all(b"220 ready\r\n");
                let mut buffer = vec![0; 1 << 16];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(length, Ordering::SeqCst);
                }
            });
        }
    });
    (port, heard)
}

/// By the proxy, and as a program does that knows nothing of one.
const SPEAK: &str = "
import socket, sys
port, ways = int(sys.argv[1]), []
s = socket.create_connection(('127.0.0.1', 3128), 60)
s.sendall(b'CONNECT localhost.:%d HTTP/1.1\\r\\n\\r\\n' % port)
print(b' 200 ' in s.recv(19))
while not s.recv(1).endswith(b'\\n'): pass
while s.recv(2) != b'\\r\\n':
    while not s.recv(1).endswith(b'\\n'): pass
ways.append(s)
ways.append(socket.create_connection(('localhost.', port), 60))
for s in ways:
    try:
        print(s.recv(100))
        s.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')
        s.close()
    except OSError as error: print(error)
";

#[tokio::test]
async fn what_is_neither_tls_nor_http_needs_a_rule_that_says_so() {
    let (port, heard) = greeting();
    let address = format!("127.0.0.1:{port}");
    for (rule, passes) in [
        (format!("localhost.:{port}"), false),
        (format!("localhost.:{port}/tcp"), true),
    ] {
        let config = allow(&[rule, address.clone()]);
        let request = Request::command(["python3", "-c", SPEAK, &port.to_string()]);
        let (report, text) = run(config, request).await;
        assert_eq!(text.contains("220 ready"), passes, "{text}");
        let raw = |one: &brig_audit::Egress| one.port == port && one.allowed && one.raw;
        let refused = |one: &brig_audit::Egress| one.code == "network.raw" && !one.allowed;
        let egress = &report.attempted.egress;
        assert_eq!(egress.iter().any(raw), passes, "{egress:?}");
        assert_eq!(egress.iter().any(refused), !passes, "{egress:?}");
        assert_eq!(heard.load(Ordering::SeqCst) > 0, passes, "{text}");
    }
}

const FLOOD: &str = "
import http.client, socket, sys
port = int(sys.argv[1])
def connect(target):
    s = socket.create_connection(('127.0.0.1', 3128), 60)
    s.sendall(b'CONNECT %s HTTP/1.1\\r\\n\\r\\n' % target.encode())
    s.recv(12)
    return s
for n in range(40): connect('127.0.0.1:%d' % port).close()
for n in range(1100):
    try: socket.getaddrinfo('n%d.invalid' % n, 80, socket.AF_INET)
    except OSError: pass
connect('169.254.169.254:80').close()
s = connect('127.0.0.1:%d' % port)
for _ in range(128): s.sendall(b'x' * 65536)
s.shutdown(socket.SHUT_WR)
while s.recv(1000): pass
";

#[tokio::test]
async fn a_flood_hides_neither_an_upload_nor_a_denial() {
    const SENT: u64 = 128 * 65536;
    let (port, heard) = greeting();
    let folder = tempfile::tempdir().unwrap();
    let log = brig_audit::Log::open(folder.path(), brig_audit::Options::default()).unwrap();
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .recorder(Arc::new(log))
        .build()
        .unwrap();
    let agent: AgentId = "network".parse().unwrap();
    let request = Request::command(["python3", "-c", FLOOD, &port.to_string()]);
    let mut config = allow(&[format!("127.0.0.1:{port}/tcp")]);
    config.limits.timeout = Limit::asked(Duration::from_secs(600));
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let outcome = report.outcome;
    assert_eq!(outcome.exit_code, 0, "{:?}", outcome.stderr);
    assert_eq!(heard.load(Ordering::SeqCst) as u64, SENT, "control");
    let totals = report.attempted.totals;
    assert_eq!(totals.sent, SENT);
    assert_eq!(totals.allowed, 41);
    assert!(totals.denied >= 1101, "{totals:?}");
    let mut listed = report.attempted.egress.iter();
    assert!(listed.any(|one| one.host == "169.254.169.254" && !one.allowed));
    // Every one of them is in the log: by itself, or in a total.
    let (mut names, mut metadata, mut upload, mut total) = (BTreeSet::new(), 0, 0, 0);
    let mut cursor = brig_audit::log::Cursor::new(folder.path());
    cursor
        .read(|line| {
            let record: brig_audit::Record = serde_json::from_str(line.record).unwrap();
            match record.event {
                brig_audit::Event::EgressDecided(one) if one.protocol == "dns" => {
                    names.insert(one.host);
                }
                brig_audit::Event::EgressDecided(one) if one.host == "169.254.169.254" => {
                    metadata += 1;
                }
                brig_audit::Event::EgressClosed(one) => {
                    upload = upload.max(one.carried.map_or(0, |carried| carried.sent));
                }
                brig_audit::Event::EgressTotal(one) if one.port == port => {
                    total += one.carried.map_or(0, |carried| carried.sent);
                }
                _ => {}
            }
            true
        })
        .unwrap();
    assert!(names.len() >= 1024, "{}", names.len());
    assert_eq!((metadata, upload, total), (1, SENT, SENT));
}

/// A root with nothing but a shell in it.
fn small_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let listing = std::process::Command::new("ldd").arg("/bin/sh").output();
    let text = String::from_utf8(listing.unwrap().stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        let place = root.path().join(file.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(file, &place).unwrap();
    }
    std::fs::create_dir(root.path().join("etc")).unwrap();
    root
}

#[tokio::test]
async fn a_root_that_was_given_asks_our_resolver() {
    let show = "while read line; do echo \"$line\"; done </etc/resolv.conf";
    let (file, link) = (small_root(), small_root());
    let own = "nameserver 192.0.2.1\nsearch corp.test\n";
    std::fs::write(file.path().join("etc/resolv.conf"), own).unwrap();
    std::fs::write(link.path().join("etc/stub"), own).unwrap();
    std::os::unix::fs::symlink("stub", link.path().join("etc/resolv.conf")).unwrap();
    for root in [&file, &link] {
        for rules in [&["a.invalid".to_owned()][..], &[]] {
            let config = SessionConfig {
                rootfs: Some(root.path().to_owned()),
                ..allow(rules)
            };
            let (_, text) = run(config, Request::command(["/bin/sh", "-c", show])).await;
            assert_eq!(text, "nameserver 127.0.0.1\n", "{rules:?}");
        }
    }
    let kept = std::fs::read_to_string(file.path().join("etc/resolv.conf"));
    assert_eq!(kept.unwrap(), own, "the root itself stays as it is");
}
