//! What the gateway does with bytes from inside a sandbox. Used by the fuzz target and, with mutated
//! messages, by an ordinary test of the `egress` crate.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use brig_egress::parse::{FirstBytes, first_bytes, socks_request, tls_hello};
use brig_egress::{
    Closed, Decided, Dial, Gateway, Host, Layer, LayerKind, ListenerKind, Name, Record, Resolve,
    Rule, RuleSet,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// Where nobody answers. Counts who was dialled.
#[derive(Clone, Default)]
struct Nowhere(Arc<AtomicUsize>);

#[async_trait]
impl Resolve for Nowhere {
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        assert_eq!(name.as_str(), "good.example", "no other is looked up");
        Ok(vec![PUBLIC])
    }
}

#[async_trait]
impl Dial for Nowhere {
    async fn dial(&self, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        assert_eq!(address.ip(), PUBLIC, "no other is dialled");
        self.0.fetch_add(1, SeqCst);
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

impl Record for Nowhere {
    fn decided(&self, _: &Decided) -> io::Result<()> {
        Ok(())
    }

    fn closed(&self, _: &Closed) {}
}

/// A gateway that knows one name.
pub(super) struct Gate {
    gateway: Gateway,
    nowhere: Nowhere,
    runtime: tokio::runtime::Runtime,
}

/// Sound inputs of each kind.
#[allow(dead_code, reason = "the fuzz target finds its own")]
pub(super) const SEEDS: [&[&[u8]]; 6] = [
    &[
        b"*.b\xc3\xbccher.example:8080",
        b"[fd00::/8]:*",
        b"10.0.0.0/8:22",
        b"db.internal:5432/tcp",
        b"[fd00::1]:*/tcp",
        b"xn--bcher-kva.example.",
    ],
    &[
        b"0x7f.1",
        b"[::ffff:127.0.0.1]",
        b"good.example.",
        b"fe80::1%eth0",
    ],
    &[
        b"\x05\x01\x00\x03\x0cgood.example\x01\xbb",
        b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50",
        b"\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50",
    ],
    &[b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04good\x07example\x00\x00\x01\x00\x01"],
    &[
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\x05hello",
        // A whole hello for good.example, in two records.
        b"\x16\x03\x01\x00\x20\x01\x00\x00@\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaa\x16\x03\x01\x00$aaaaaa\x00\x00\x02\x13\x01\x01\x00\x00\x15\x00\x00\x00\x11\x00\x0f\x00\x00\x0cgood.example",
        b"PRI * HTTP/2.0\r\n",
    ],
    &[
        b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
        b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello",
        b"CONNECT good.example:80 HTTP/1.1\r\nHost: good.example:80\r\n\r\n",
        b"\x05\x01\x00\x05\x01\x00\x03\x0cgood.example\x01\xbb",
    ],
];

impl Gate {
    pub(super) fn new() -> Self {
        let rule = Rule::parse("good.example").expect("a rule");
        let layer = Layer::new(LayerKind::Run).allow([rule]);
        let nowhere = Nowhere::default();
        let gateway = Gateway::builder(RuleSet::new(vec![layer]), nowhere.clone())
            .resolve(nowhere.clone())
            .dial(nowhere.clone())
            .build();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("a runtime");
        Self {
            gateway,
            nowhere,
            runtime,
        }
    }

    /// Says all of it to the proxy. Whether that led to the one host.
    fn ask(&self, bytes: &[u8]) -> bool {
        let before = self.nowhere.0.load(SeqCst);
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let asking = async move {
            let _ = near.write_all(bytes).await;
            let _ = near.shutdown().await;
            let _ = near.read_to_end(&mut Vec::new()).await;
        };
        let serving = self.gateway.connection(far, ListenerKind::Proxy, None);
        self.runtime
            .block_on(async { tokio::join!(serving, asking) });
        self.nowhere.0.load(SeqCst) > before
    }

    /// Reads the bytes as one of the kinds. Whether they are one.
    pub(super) fn read(&self, kind: usize, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        match kind % SEEDS.len() {
            0 => Rule::parse(&text).is_ok_and(|rule| {
                let again = Rule::parse(&rule.to_string()).expect("what is shown can be read");
                assert_eq!(again, rule);
                assert!(rule.covers(&again));
                true
            }),
            1 => Host::parse(&text).is_ok_and(|host| {
                let shown = host.to_string();
                assert!(
                    shown
                        .bytes()
                        .all(|b| b.is_ascii_graphic() && b != b'@' && b != b'/')
                );
                assert_eq!(Host::parse(&shown).as_ref(), Ok(&host));
                assert!(Rule::exactly(&host, 7).allows(&host, 7));
                true
            }),
            2 => match socks_request(bytes) {
                Ok(Some((host, _, length))) => {
                    assert!(length <= bytes.len());
                    host.is_ok()
                }
                _ => false,
            },
            3 => self.gateway.answer_dns(bytes).is_some_and(|answer| {
                assert_eq!(
                    answer.get(..2),
                    bytes.get(..2),
                    "the answer to this question"
                );
                // No error, one answer.
                answer.get(3).is_some_and(|flags| flags & 15 == 0)
            }),
            5 => self.ask(bytes),
            _ => {
                drop(tls_hello(bytes));
                let first = first_bytes(bytes);
                // More bytes never turn a request into something else.
                let more = first_bytes(&[bytes, b"\r\nHost: a\r\n\r\n"].concat());
                assert!(first == FirstBytes::More || first == more || more == FirstBytes::Http);
                matches!(
                    first,
                    FirstBytes::Http | FirstBytes::Http2 | FirstBytes::Tls
                )
            }
        }
    }
}
