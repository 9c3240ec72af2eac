//! Ways out of a sandbox with a network that are none. Nothing of it leaves the sandbox's own network
//! namespace: the addresses are for documentation, multicast, or this machine's.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

use brig_egress::{Layer, LayerKind, Rule};
use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Language, NetworkConfig, Request, Sandbox, SessionConfig};

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

fn sandbox() -> Sandbox {
    let backend = Arc::new(NativeBackend::new());
    Sandbox::builder(backend).build().unwrap()
}

/// Sends to each place and says what came of it. The last are the controls: our own DNS answers, which is waited for
/// longer.
const PROBE: &str = r#"
import socket, struct
QUERY = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06denied\x07invalid\x00\x00\x01\x00\x01'
def udp(name, place, kind=socket.AF_INET, proto=0, data=QUERY, wait=1):
    try:
        with socket.socket(kind, socket.SOCK_DGRAM, proto) as s:
            s.settimeout(wait)
            s.sendto(data, place)
            print(name, 'answered', len(s.recv(2000)))
    except OSError as e:
        print(name, 'nothing', type(e).__name__)
def tcp(name, place, wait=5):
    try:
        with socket.create_connection(place, wait) as s:
            s.settimeout(wait)
            s.sendall(struct.pack('>H', len(QUERY)) + QUERY)
            print(name, 'answered' if s.recv(2000) else 'nothing')
    except OSError as e:
        print(name, 'nothing', type(e).__name__)
udp('quic', ('192.0.2.1', 443))
udp('dns', ('192.0.2.1', 53))
udp('dns6', ('2001:db8::1', 53), socket.AF_INET6)
udp('mdns', ('224.0.0.251', 5353))
udp('llmnr', ('224.0.0.252', 5355))
udp('broadcast', ('255.255.255.255', 53))
udp('host', ('127.0.0.1', HOST))
udp('ping', ('192.0.2.1', 0), proto=socket.IPPROTO_ICMP, data=b'\x08\0\0\0\0\0\0\0')
tcp('dns-tcp', ('192.0.2.1', 53))
tcp('dot', ('192.0.2.1', 853))
tcp('doh', ('192.0.2.1', 443))
udp('own', ('127.0.0.1', 53), wait=30)
tcp('own-tcp', ('127.0.0.1', 53), wait=30)
"#;

#[tokio::test]
async fn packets_that_are_not_for_a_door_go_nowhere() {
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let code = PROBE.replace("HOST", &port.to_string());
    let config = allow(&["other.invalid:443".into(), "other.invalid:853".into()]);
    let agent: AgentId = "ways-out".parse().unwrap();
    let request = Request::code(Language::Python, code);
    let report = sandbox().run_once(&agent, config, request).await.unwrap();
    let outcome = report.outcome;
    let text = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 13, "{text} {outcome:?}");
    for line in &lines[..11] {
        assert!(line.contains(" nothing"), "{line}: {text}");
    }
    for line in &lines[11..] {
        assert!(line.contains(" answered"), "control: {line}: {text}");
    }
    // The question to our own was decided, and no other got as far as a decision.
    let asked = report.attempted.egress;
    assert!(asked.iter().all(|one| !one.allowed), "{asked:?}");
    assert!(asked.iter().any(|one| one.host == "denied.invalid"));
    host.set_nonblocking(true).unwrap();
    assert!(host.recv(&mut [0; 64]).is_err(), "the host got something");
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    own.send_to(b"x", ("127.0.0.1", port)).unwrap();
    host.set_nonblocking(false).unwrap();
    assert_eq!(host.recv(&mut [0; 64]).unwrap(), 1, "control: it listens");
}

/// Says who it is to whoever connects.
fn server(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                let body = name.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {body}\r\nConnection: close\r\n\r\n{name}"
                );
            });
        }
    });
    port
}

#[tokio::test]
async fn sessions_at_a_time_have_each_its_own_way_out() {
    let ports = [server("one"), server("two")];
    let sandbox = sandbox();
    let agent: AgentId = "ways-out".parse().unwrap();
    let mut sessions = Vec::new();
    for port in ports {
        let config = allow(&[format!("127.0.0.1:{port}")]);
        let session = sandbox.create_session(&agent, None, config).await.unwrap();
        sessions.push(session);
    }
    let none = sandbox.create_session(&agent, None, SessionConfig::default());
    let none = none.await.unwrap();
    let script = format!(
        "for port in {} {}; do curl -sS -m 20 --noproxy '' -x http://127.0.0.1:3128 http://127.0.0.1:$port/; done",
        ports[0], ports[1]
    );
    let ask = || ["sh", "-c", &script].map(Into::into).to_vec();
    let (one, two, other) = tokio::join!(
        sessions[0].run(ask()),
        sessions[1].run(ask()),
        none.run(ask())
    );
    let said = |report: brig_sandbox::Report| {
        let bytes = report.outcome.stdout.bytes;
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (one, two, other) = (said(one.unwrap()), said(two.unwrap()), said(other.unwrap()));
    let denied = |port: u16| format!("`127.0.0.1:{port}` is denied");
    assert!(
        one.starts_with("one") && one.contains(&denied(ports[1])),
        "{one}"
    );
    assert!(
        two.ends_with("two") && two.contains(&denied(ports[0])),
        "{two}"
    );
    assert_eq!(other, "", "without a network there is no proxy");
    for session in sessions.into_iter().chain([none]) {
        session.destroy().await.unwrap();
    }
}
