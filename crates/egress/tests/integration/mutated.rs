//! Feeds mutated bytes to everything that reads from inside the sandbox. The same entry function is
//! fuzzed with coverage in `fuzz/`.

#[path = "../../../../fuzz/egress.rs"]
mod entry;

use crate::common::server::Server;
use crate::common::{Lab, PUBLIC, allowing};
use brig_egress::ListenerKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const INPUTS: usize = 20_000;

#[test]
fn a_sandbox_can_send_anything() {
    let fuzzer = entry::Gate::new();
    for (kind, seeds) in entry::SEEDS.iter().enumerate() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ kind as u64);
        let mut accepted = 0;
        for seed in *seeds {
            assert!(
                fuzzer.read(kind, seed),
                "{kind}: {:?}",
                String::from_utf8_lossy(seed)
            );
        }
        for _ in 0..INPUTS {
            let mut input = seeds[random.below(seeds.len())].to_vec();
            for _ in 0..=random.below(3) {
                random.change(&mut input);
            }
            accepted += usize::from(fuzzer.read(kind, &input));
        }
        assert!(
            (INPUTS / 100..INPUTS).contains(&accepted),
            "{kind}: {accepted}"
        );
    }
}

/// Requests of one sort and the other, in any mixture.
const REQUESTS: [&[u8]; 6] = [
    b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"GET http://evil.io/ HTTP/1.1\r\nHost: evil.io\r\n\r\n",
    b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello",
    b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"CONNECT good.example:80 HTTP/1.1\r\nHost: good.example:80\r\n\r\nGET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    b"\x05\x01\x00\x05\x01\x00\x03\x0cgood.example\x00\x50GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
];

#[test]
fn whatever_is_asked_only_the_allowed_host_is_reached() {
    const ROUNDS: usize = 3000;
    let server = Server::plain();
    let lab = Lab::new(allowing(&["good.example"]));
    lab.name("good.example", &[PUBLIC])
        .route(PUBLIC, 80, server.address)
        .route(PUBLIC, 443, server.address);
    let mut random = Random(11);
    let inputs: Vec<Vec<u8>> = (0..ROUNDS)
        .map(|_| {
            let parts = 1 + random.below(3);
            let mut input: Vec<u8> = (0..parts)
                .flat_map(|_| REQUESTS[random.below(REQUESTS.len())].to_vec())
                .collect();
            for _ in 0..random.below(4) {
                random.change(&mut input);
            }
            input
        })
        .collect();
    let mut answered = 0;
    for input in inputs.chunks(50) {
        let served = input.iter().map(|input| {
            let (gateway, input) = (lab.gateway.clone(), input.clone());
            async move {
                let (mut near, far) = tokio::io::duplex(64 * 1024);
                let serving = gateway.connection(far, ListenerKind::Proxy, None);
                let asking = async move {
                    let _ = near.write_all(&input).await;
                    let _ = near.shutdown().await;
                    let mut said = Vec::new();
                    let _ = near.read_to_end(&mut said).await;
                    said
                };
                tokio::join!(serving, asking).1
            }
        });
        let mut all = tokio::task::JoinSet::new();
        let said = lab.block_on(async {
            served.for_each(|one| drop(all.spawn(one)));
            all.join_all().await
        });
        answered += said.iter().filter(|said| contains(said, b"200 OK")).count();
    }
    assert!(answered > ROUNDS / 4, "{answered}");
    assert!(lab.looked_up().iter().all(|name| name == "good.example"));
    assert!(
        lab.dialled()
            .iter()
            .all(|address| address.starts_with(PUBLIC))
    );
    for head in server.requests() {
        let hosts = head
            .lines()
            .filter(|line| line.to_ascii_lowercase().starts_with("host:"));
        let hosts: Vec<&str> = hosts.collect();
        assert_eq!(hosts, ["host: good.example"], "{head}");
    }
}

/// The name that another reader of TLS finds, or nothing if it refuses the hello.
fn other_reader(mut bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = rustls::server::Acceptor::default();
    while acceptor.read_tls(&mut bytes).ok()? > 0 {
        if let Some(accepted) = acceptor.accept().ok()? {
            let hello = accepted.client_hello();
            return Some(hello.server_name().map(str::to_owned));
        }
    }
    None
}

#[test]
fn a_hello_has_one_name_for_every_reader() {
    let hellos = [client_hello("good.example"), client_hello("evil.example")];
    for (hello, name) in hellos.iter().zip(["good.example", "evil.example"]) {
        let read = brig_egress::parse::tls_hello(hello).expect("a hello");
        assert_eq!(read.name.as_deref(), Some(name));
        assert_eq!(other_reader(hello), Some(Some(name.to_owned())), "control");
    }
    let mut random = Random(23);
    let (mut both, mut ours) = (0, 0);
    for _ in 0..INPUTS {
        let mut input = hellos[random.below(2)].clone();
        match random.below(6) {
            0 => input.extend_from_slice(&hellos[random.below(2)]),
            1 => {
                // In records of any size.
                let message = input.split_off(5);
                input.clear();
                for piece in message.chunks(1 + random.below(300)) {
                    input.extend_from_slice(&[22, 3, 1]);
                    input.extend_from_slice(&(piece.len() as u16).to_be_bytes());
                    input.extend_from_slice(piece);
                }
            }
            _ => {}
        }
        for _ in 0..random.below(4) {
            random.change(&mut input);
        }
        let Some(read) = brig_egress::parse::tls_hello(&input) else {
            continue;
        };
        ours += 1;
        if let Some(other) = other_reader(&input) {
            both += 1;
            let lower = |name: Option<String>| name.map(|name| name.to_ascii_lowercase());
            assert_eq!(lower(read.name), lower(other), "{input:?}");
        }
    }
    assert!(both > INPUTS / 20 && ours < INPUTS, "{ours} {both}");
}

fn client_hello(name: &str) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(config.into(), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a hello");
    bytes
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(5) {
            0 => input.truncate(at),
            1 => input.insert(at, self.below(256) as u8),
            2 if !input.is_empty() => drop(input.remove(at)),
            3 if !input.is_empty() => {
                input[at] = [0, 0xff, b'.', b':', b'\n', b'*', b'%'][self.below(7)]
            }
            _ if !input.is_empty() => input[at] ^= 1 << self.below(8),
            _ => {}
        }
    }
}
