//! Which protocols a program can ask the kernel for. Sockets are made, and nothing is sent.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Language, Request, Sandbox, SessionConfig};

const PROBE: &str = "
import errno, socket
def make(name, *what):
    try:
        socket.socket(*what).close()
        print(name, 'made')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
INET, INET6 = socket.AF_INET, socket.AF_INET6
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
make('tcp', INET, STREAM, 0)
make('tcp', INET, STREAM | socket.SOCK_NONBLOCK, 6)
make('tcp', INET6, STREAM | socket.SOCK_CLOEXEC, 6)
make('udp', INET, DGRAM, 0)
make('udp', INET6, DGRAM, 17)
make('sctp', INET, STREAM, 132)
make('sctp', INET6, STREAM, 132)
make('mptcp', INET, STREAM, 262)
make('udplite', INET, DGRAM, 136)
make('l2tp', INET, DGRAM, 115)
make('ping', INET, DGRAM, 1)
";

/// Asking for another one would make the kernel load a module for it.
#[tokio::test]
async fn only_the_ordinary_protocols_are_there() {
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "sockets".parse().unwrap();
    let request = Request::code(Language::Python, PROBE);
    let config = SessionConfig::default();
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let stdout = report.outcome.stdout.bytes;
    let lines = String::from_utf8_lossy(&stdout).into_owned();
    assert_eq!(lines.lines().count(), 11, "{lines}");
    for line in lines.lines() {
        let (name, answer) = line.split_once(' ').unwrap();
        let expected = match name {
            "tcp" | "udp" => "made",
            _ => "EAFNOSUPPORT",
        };
        assert_eq!(answer, expected, "{name}");
    }
}
