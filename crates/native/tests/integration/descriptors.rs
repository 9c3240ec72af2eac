//! A program that opens as many connections as it can, under an owner that has few descriptors.

use std::net::TcpListener;
use std::sync::Arc;

use brig_egress::{Layer, LayerKind, Rule};
use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Language, NetworkConfig, Request, Sandbox, SessionConfig};
use rustix::process::{Resource, getrlimit, setrlimit};

const DESCRIPTORS: u64 = 256;

#[tokio::test]
async fn a_flood_of_connections_leaves_the_owner_what_it_needs() {
    brig_testing::alone!();
    let mut few = getrlimit(Resource::Nofile);
    few.current = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, few).unwrap();
    // Does not accept while they come: they wait in the kernel and take no descriptor here.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port();
    let code = format!(
        "import socket\n\
         open, opened, refused = [], 0, 0\n\
         for _ in range(240):\n\
         \x20   s = socket.create_connection(('127.0.0.1', 3128))\n\
         \x20   open.append(s)\n\
         \x20   try:\n\
         \x20       s.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n\
         \x20       opened += b' 200 ' in s.recv(100)\n\
         \x20   except OSError:\n\
         \x20       refused += 1\n\
         print(opened)"
    );
    let rule = Rule::parse(&format!("127.0.0.1:{port}")).unwrap();
    let config = SessionConfig {
        network: NetworkConfig {
            open: false,
            layers: vec![Layer::new(LayerKind::Run).allow([rule])],
        },
        ..SessionConfig::default()
    };
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "flood".parse().unwrap();
    for _ in 0..2 {
        let request = Request::code(Language::Python, code.as_str());
        let report = sandbox.run_once(&agent, config.clone(), request).await;
        let outcome = report.unwrap().outcome;
        let text = String::from_utf8_lossy(&outcome.stdout.bytes);
        assert_eq!(outcome.exit_code, 0, "{:?}", outcome.stderr);
        let opened: u64 = text.trim().parse().unwrap();
        assert!(opened > 10, "the control: {opened}");
        assert!(opened <= DESCRIPTORS * 3 / 8, "{opened}");
        while server.accept().is_ok() {}
    }
}
