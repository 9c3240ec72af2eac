//! What a program in a container sends to an address that it has no way to fails, and is on record.
//! Nothing of it leaves the container's own network namespace: the addresses are for documentation,
//! or nobody's.

use std::sync::Arc;

use crate::common::Engine;
use brig_audit::Egress;
use brig_docker::DockerBackend;
use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::{AgentId, Language, NetworkConfig, Report, Request, Sandbox, SessionConfig};
use brig_testing::Server;

const PRELUDE: &str = r#"
import ctypes, errno, os, socket, struct, sys, time
LIBC = ctypes.CDLL(None, use_errno=True)
QUERY = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05asked\x07invalid\x00\x00\x01\x00\x01'
def say(name, what):
    print(name, errno.errorcode.get(getattr(what, 'errno', 0), what), flush=True)
def attempt(name, call):
    try: say(name, f'DONE {call()}')
    except OSError as e: say(name, e)
def tcp(name, place, kind=socket.AF_INET):
    with socket.socket(kind) as s:
        s.settimeout(10)
        attempt(name, lambda: s.connect(place))
def datagram(kind=socket.AF_INET):
    return socket.socket(kind, socket.SOCK_DGRAM)
def ipv4(address, port, family=socket.AF_INET):
    return struct.pack('=H', family) + struct.pack('>H', port) + socket.inet_aton(address) + bytes(8)
def message(name, data, keep):
    name, data = ctypes.create_string_buffer(name), ctypes.create_string_buffer(data)
    part = (ctypes.c_uint64 * 2)(ctypes.addressof(data), len(data) - 1)
    keep += [name, data, part]
    return struct.pack('=8Q', ctypes.addressof(name), 16, ctypes.addressof(part), 1, 0, 0, 0, 0)
def asked(name):
    with datagram() as s:
        s.settimeout(5)
        labels = b''.join(bytes([len(part)]) + part for part in name.encode().split(b'.'))
        s.sendto(b'\x12\x34\x01\0\0\x01\0\0\0\0\0\0' + labels + b'\0\0\x01\0\x01', ('127.0.0.1', 53))
        return socket.inet_ntoa(s.recv(500)[-4:])
"#;

fn allowing(mut config: SessionConfig, rules: &[String]) -> SessionConfig {
    let rules = rules.iter().map(|rule| Rule::parse(rule).expect("a rule"));
    config.network = NetworkConfig {
        open: false,
        layers: vec![Layer::new(LayerKind::Run).allow(rules)],
    };
    config
}

async fn run(backend: &Arc<DockerBackend>, config: SessionConfig, code: &str) -> (Report, String) {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let agent: AgentId = "beyond".parse().expect("name");
    let request = Request::code(Language::Python, format!("{PRELUDE}{code}"));
    let report = sandbox.run_once(&agent, config, request).await;
    let report = report.expect("a report");
    let outcome = &report.outcome;
    let both = [&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    (report, text)
}

/// The denial of this protocol, host and port.
fn denied<'a>(report: &'a Report, protocol: &str, host: &str, port: u16) -> Option<&'a Egress> {
    let is_meant = |one: &&Egress| {
        !one.allowed && one.protocol == protocol && one.host == host && one.port == port
    };
    report.attempted.egress.iter().find(is_meant)
}

fn times(egress: Option<&Egress>) -> u64 {
    let times = egress.and_then(|egress| egress.times);
    times.map_or(0, |times| times.count)
}

/// The runtimes whose kernel tells of calls, as far as they are to be tried.
fn engines(test: &str) -> impl Iterator<Item = (&'static str, Engine)> {
    let test = test.to_owned();
    ["runc", "crun"].into_iter().filter_map(move |runtime| {
        let engine = Engine::with(runtime, &format!("{test} on {runtime}"))?;
        Some((runtime, engine))
    })
}

const PLACES: [(&str, &str, u16, &str); 12] = [
    ("tcp", "169.254.169.254", 80, "network.address"),
    ("tcp", "192.0.2.1", 5432, "network.address"),
    ("tcp", "192.0.2.9", 9000, "network.address"),
    ("tcp", "2001:db8::7", 443, "network.address"),
    ("tcp", "192.0.2.10", 7, "network.address"),
    ("udp", "192.0.2.1", 4444, "network.address"),
    ("udp", "192.0.2.2", 2, "network.address"),
    ("udp", "192.0.2.3", 3, "network.address"),
    ("udp", "192.0.2.4", 4, "network.address"),
    ("udp", "192.0.2.6", 6, "network.address"),
    ("udp", "192.0.2.53", 53, "network.address"),
    ("dns", "asked.invalid", 0, "network.no-rule"),
];

const EVERYWHERE: &str = r#"
tcp('metadata', ('169.254.169.254', 80))
tcp('database', ('192.0.2.1', 5432))
tcp('mapped', ('::ffff:192.0.2.9', 9000), socket.AF_INET6)
tcp('ipv6', ('2001:db8::7', 443), socket.AF_INET6)
attempt('fast open', lambda: socket.socket().sendto(b'x', 0x20000000, ('192.0.2.10', 7)))
attempt('connected', lambda: datagram().connect(('192.0.2.1', 4444)))
attempt('sendto', lambda: datagram().sendto(b'x', ('192.0.2.2', 2)))
attempt('sendmsg', lambda: datagram().sendmsg([b'x'], [], 0, ('192.0.2.3', 3)))
attempt('dns', lambda: datagram().sendto(QUERY, ('192.0.2.53', 53)))
# The first message stays here, and the second does not.
own = datagram(); own.bind(('127.0.0.1', 0))
keep = []
both = message(ipv4('127.0.0.1', own.getsockname()[1]), b'here', keep) + message(ipv4('192.0.2.4', 4), b'x', keep)
s = datagram()
print('sendmmsg', LIBC.syscall(307, s.fileno(), both, 2, 0), own.recv(10), flush=True)
# A datagram to an address of no family is sent by IPv4.
none = ipv4('192.0.2.6', 6, 0)
print('no family', LIBC.sendto(s.fileno(), b'x', 1, 0, none, len(none)), errno.errorcode[ctypes.get_errno()])
"#;

/// With the network off, and with one that leads elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_beyond_a_container_is_on_record() {
    for (runtime, engine) in engines("what is sent beyond a container") {
        let backend = engine.backend().await;
        let other = allowing(engine.config(runtime), &["other.invalid:8443".into()]);
        for config in [engine.config(runtime), other] {
            let (report, text) = run(&backend, config, EVERYWHERE).await;
            let egress = &report.attempted.egress;
            for (protocol, host, port, code) in PLACES {
                let found = denied(&report, protocol, host, port);
                let found = found.unwrap_or_else(|| {
                    panic!("{runtime}: {protocol} {host} {port}: {egress:#?} {text}")
                });
                assert_eq!(found.code, code, "{runtime}: {host}");
                assert_eq!(times(Some(found)), 1, "{runtime}: {host}");
            }
            assert_eq!(egress.len(), PLACES.len(), "{runtime}: {egress:#?}");
            assert!(text.contains("sendmmsg 1 b'here'"), "{runtime}: {text}");
            assert!(text.contains("no family -1 ENETUNREACH"), "{text}");
            assert!(!text.contains("DONE"), "{runtime}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_allowed_and_what_stays_inside_is_no_denial() {
    for (runtime, engine) in engines("what stays inside a container") {
        let server = Server::start();
        let port = server.port;
        let code = format!(
            "l = socket.create_server(('127.0.0.1', 0))\n\
             tcp('own', l.getsockname())\n\
             tcp('nobody', ('127.0.0.1', 9))\n\
             tcp('any', ('0.0.0.0', l.getsockname()[1]))\n\
             u = datagram(); u.bind(('127.70.0.5', 0))\n\
             u.sendto(b'hello', u.getsockname()); say('datagram', u.recv(10))\n\
             p = datagram(); p.bind(('127.64.9.9', 0))\n\
             p.sendmsg([b'hello'], [], 0, p.getsockname()); say('pool', p.recv(10))\n\
             f = socket.socket(socket.AF_UNIX); f.bind('/tmp/socket'); f.listen()\n\
             c = socket.socket(socket.AF_UNIX); c.connect('/tmp/socket'); say('file', 'CONNECTED')\n\
             s = socket.create_connection((asked('localhost'), {port}), 10)\n\
             s.sendall(b'GET /page HTTP/1.1\\r\\nHost: localhost.:{port}\\r\\nConnection: close\\r\\n\\r\\n')\n\
             print(s.makefile('rb').read())\n"
        );
        let rules = [format!("localhost.:{port}"), format!("127.0.0.1:{port}")];
        let config = allowing(engine.config(runtime), &rules);
        let (report, text) = run(&engine.backend().await, config, &code).await;
        for line in [
            "own DONE",
            "nobody ECONNREFUSED",
            "any DONE",
            "datagram b'hello'",
            "pool b'hello'",
            "file CONNECTED",
            "served GET /page",
        ] {
            assert!(text.contains(line), "{runtime}: {line}: {text}");
        }
        let egress = &report.attempted.egress;
        let reached = egress.iter().any(|one| one.allowed && one.port == port);
        assert!(reached, "{runtime}: {egress:#?}");
        assert!(egress.iter().all(|one| one.allowed), "{egress:#?}");
        assert_eq!(server.asked(), 1, "{runtime}");
    }
}

/// What stands for a name is on record under it, also where no listener is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allowed_name_on_another_port_is_on_record_by_its_name() {
    for (runtime, engine) in engines("another port of an allowed name") {
        let code = "place = asked('localhost')\n\
                    tcp('named', (place, 5432))\n\
                    attempt('udp', lambda: datagram().sendto(b'x', (place, 443)))\n";
        let rules = ["localhost.:8443".into(), "localhost.:443".into()];
        let config = allowing(engine.config(runtime), &rules);
        let (report, text) = run(&engine.backend().await, config, code).await;
        assert!(text.contains("named ECONNREFUSED"), "{runtime}: {text}");
        let egress = &report.attempted.egress;
        for (protocol, port, code) in [
            ("tcp", 5432, "network.port"),
            ("udp", 443, "network.protocol"),
        ] {
            let found = denied(&report, protocol, "localhost", port);
            let code_found = found.map(|one| one.code.as_str());
            assert_eq!(code_found, Some(code), "{runtime}: {egress:#?} {text}");
        }
    }
}

/// All of them are counted, and what comes after them is on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_counted_and_hides_nothing() {
    for (runtime, engine) in engines("a flood of calls") {
        let code = "s = datagram()\n\
                    def flood(place):\n\
                    \x20   try: s.sendto(b'x', place)\n\
                    \x20   except OSError: pass\n\
                    for _ in range(5000): flood(('192.0.2.1', 1))\n\
                    for n in range(1500): flood(('192.0.2.2', n + 1))\n\
                    tcp('metadata', ('169.254.169.254', 80))\n\
                    t = socket.socket(); t.setblocking(False)\n\
                    t.connect_ex(('192.0.2.3', 3))\n\
                    os._exit(0)";
        let (report, text) = run(&engine.backend().await, engine.config(runtime), code).await;
        assert!(text.contains("metadata ENETUNREACH"), "{runtime}: {text}");
        assert_eq!(report.attempted.totals.denied, 6502, "{runtime}");
        let same = times(denied(&report, "udp", "192.0.2.1", 1));
        assert_eq!(same, 5000, "{runtime}: {:#?}", report.attempted.egress);
    }
}

/// A process that can't be looked into reaches nothing, which is on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hides_its_memory_hides_no_attempt() {
    for (runtime, engine) in engines("calls of a process that hides its memory") {
        let code = "l = socket.create_server(('127.0.0.1', 0))\n\
                    tcp('control', l.getsockname())\n\
                    LIBC.prctl(4, 0, 0, 0, 0)\n\
                    tcp('hidden', ('192.0.2.1', 1))\n";
        let (report, text) = run(&engine.backend().await, engine.config(runtime), code).await;
        assert!(text.contains("control DONE"), "{runtime}: {text}");
        assert!(text.contains("hidden EACCES"), "{runtime}: {text}");
        let egress = &report.attempted.egress;
        let found = denied(&report, "tcp", "unreadable address", 0);
        let code = found.map(|one| one.code.as_str());
        assert_eq!(code, Some("network.malformed"), "{runtime}: {egress:#?}");
    }
}

/// Each execution of a session has its own attempts on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_execution_has_its_own_attempts() {
    for (runtime, engine) in engines("attempts of several executions") {
        let backend = engine.backend().await;
        let sandbox = Sandbox::builder(backend).build().expect("sandbox");
        let agent: AgentId = "beyond".parse().expect("name");
        let session = sandbox.create_session(&agent, None, engine.config(runtime));
        let session = session.await.expect("a session");
        for count in [3, 2] {
            let code = format!("for _ in range({count}): tcp('x', ('192.0.2.1', 1))");
            let code = format!("{PRELUDE}{code}");
            let report = session.execute_code(Language::Python, code).await;
            let report = report.expect("a report");
            let found = times(denied(&report, "tcp", "192.0.2.1", 1));
            assert_eq!(found, count, "{runtime}: {:#?}", report.attempted.egress);
        }
        session.destroy().await.expect("gone");
    }
}

/// The guest is not asked about one descriptor, which no program can have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_has_the_descriptor_that_is_passed_over() {
    for (runtime, engine) in engines("the descriptor that is passed over") {
        let code = "import resource\n\
                    s = datagram()\n\
                    attempt('control', lambda: os.dup2(s.fileno(), 4094))\n\
                    attempt('dup2', lambda: os.dup2(s.fileno(), 4095))\n\
                    def more():\n\
                    \x20   try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
                    \x20   except ValueError as e: raise OSError(errno.EPERM, str(e))\n\
                    attempt('more', more)\n\
                    attempt('sendmsg', lambda: socket.socket(fileno=4094).sendmsg([b'x'], [], 0, ('192.0.2.1', 1)))\n";
        let (report, text) = run(&engine.backend().await, engine.config(runtime), code).await;
        assert!(text.contains("control DONE 4094"), "{runtime}: {text}");
        assert!(text.contains("dup2 EBADF"), "{runtime}: {text}");
        assert!(text.contains("more EPERM"), "{runtime}: {text}");
        let egress = &report.attempted.egress;
        let found = denied(&report, "udp", "192.0.2.1", 1);
        assert!(found.is_some(), "{runtime}: {egress:#?} {text}");
    }
}
