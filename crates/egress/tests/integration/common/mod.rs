//! A gateway on loopback with scripted names and servers. Nothing leaves the machine: whatever is
//! dialled and not scripted is refused here.
pub(crate) mod namespace;
pub(crate) mod server;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream as StdStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_egress::{
    Acceptor, Closed, Decided, Dial, DnsSocket, Gateway, Layer, LayerKind, Limits, ListenerKind,
    Name, Record, Resolve, Rule, RuleSet, Rules,
};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Two addresses that count as public, and are never dialled for real.
pub(crate) const PUBLIC: &str = "93.184.216.34";
pub(crate) const OTHER: &str = "93.184.216.35";

pub(crate) fn rules(entries: &[&str]) -> Vec<Rule> {
    (entries.iter())
        .map(|entry| Rule::parse(entry).unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

pub(crate) fn allowing(entries: &[&str]) -> RuleSet {
    RuleSet::new(vec![Layer::new(LayerKind::Run).allow(rules(entries))])
}

/// What the gateway saw and did.
#[derive(Default)]
pub(crate) struct Seen {
    pub decided: Mutex<Vec<Decided>>,
    pub closed: Mutex<Vec<Closed>>,
    /// Names that were looked up.
    pub looked_up: Mutex<Vec<String>>,
    /// Addresses that were dialled.
    pub dialled: Mutex<Vec<SocketAddr>>,
    /// Whether records can be written.
    pub full: Mutex<bool>,
}

#[derive(Clone)]
struct Script {
    seen: Arc<Seen>,
    /// Answers of each name, one after the other; the last one stays.
    names: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    routes: Arc<Mutex<HashMap<SocketAddr, SocketAddr>>>,
}

#[async_trait]
impl Resolve for Script {
    async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        self.seen
            .looked_up
            .lock()
            .expect("not poisoned")
            .push(name.to_string());
        let mut names = self.names.lock().expect("not poisoned");
        let answers = (names.get_mut(name.as_str()))
            .ok_or_else(|| io::Error::other("there is no such name"))?;
        Ok(match answers.len() {
            0 => Vec::new(),
            1 => answers[0].clone(),
            _ => answers.remove(0),
        })
    }
}

#[async_trait]
impl Dial for Script {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.seen
            .dialled
            .lock()
            .expect("not poisoned")
            .push(address);
        let route = self
            .routes
            .lock()
            .expect("not poisoned")
            .get(&address)
            .copied();
        match route {
            Some(to) => TcpStream::connect(to).await,
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

impl Record for Script {
    fn decided(&self, event: &Decided) -> io::Result<()> {
        if *self.seen.full.lock().expect("not poisoned") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.seen
            .decided
            .lock()
            .expect("not poisoned")
            .push(event.clone());
        Ok(())
    }

    fn closed(&self, event: &Closed) {
        self.seen
            .closed
            .lock()
            .expect("not poisoned")
            .push(event.clone());
    }
}

pub(crate) struct Lab {
    pub gateway: Gateway,
    pub rules: Rules,
    pub seen: Arc<Seen>,
    script: Script,
    /// HTTP and SOCKS5.
    pub proxy: SocketAddr,
    pub dns: SocketAddr,
    pub dns_tcp: SocketAddr,
    acceptors: Mutex<Vec<Acceptor>>,
    runtime: Option<Runtime>,
}

impl Lab {
    pub(crate) fn new(rules: RuleSet) -> Self {
        Self::with_limits(rules, Limits::default())
    }

    pub(crate) fn with_limits(rules: RuleSet, limits: Limits) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let seen = Arc::new(Seen::default());
        let script = Script {
            seen: seen.clone(),
            names: Arc::default(),
            routes: Arc::default(),
        };
        let rules = Rules::new(rules);
        let gateway = Gateway::builder(rules.clone(), script.clone())
            .resolve(script.clone())
            .dial(script.clone())
            .limits(limits)
            .build();
        let listener = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            (listener, address)
        };
        let ((proxy_listener, proxy), (dns_listener, dns_tcp)) = (listener(), listener());
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let dns = udp.local_addr().expect("an address");
        let acceptor = {
            let _runtime = runtime.enter();
            serve_dns(&gateway, udp);
            let listeners = vec![
                (proxy_listener.into(), ListenerKind::Proxy),
                (dns_listener.into(), ListenerKind::Dns),
            ];
            gateway.accept(listeners).expect("an acceptor")
        };
        Self {
            gateway,
            rules,
            seen,
            script,
            proxy,
            dns,
            dns_tcp,
            acceptors: Mutex::new(vec![acceptor]),
            runtime: Some(runtime),
        }
    }

    /// Lets a name have these addresses.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) -> &Self {
        self.name_in_turn(name, &[addresses])
    }

    /// Lets a name have first these, then those addresses.
    pub(crate) fn name_in_turn(&self, name: &str, answers: &[&[&str]]) -> &Self {
        let answers = (answers.iter())
            .map(|answer| {
                answer
                    .iter()
                    .map(|ip| ip.parse().expect("an address"))
                    .collect()
            })
            .collect();
        self.script
            .names
            .lock()
            .expect("valid")
            .insert(name.to_owned(), answers);
        self
    }

    /// Lets an address and port lead to a server.
    pub(crate) fn route(&self, address: &str, port: u16, to: SocketAddr) -> &Self {
        let from = SocketAddr::new(address.parse().expect("an address"), port);
        self.script
            .routes
            .lock()
            .expect("not poisoned")
            .insert(from, to);
        self
    }

    /// A listener of the gateway for transparent connections to whatever port it has.
    pub(crate) fn transparent(&self, address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let _runtime = self.runtime.as_ref().expect("it runs").enter();
        let listeners = vec![(listener.into(), ListenerKind::Transparent)];
        let acceptor = self.gateway.accept(listeners).expect("an acceptor");
        self.acceptors.lock().expect("not poisoned").push(acceptor);
        address
    }

    /// The resolver at another address.
    pub(crate) fn dns_at(&self, address: &str) {
        let _runtime = self.runtime.as_ref().expect("it runs").enter();
        let udp = UdpSocket::bind(address).expect("a port");
        serve_dns(&self.gateway, udp);
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().expect("it runs").block_on(future)
    }

    /// Ends the gateway as a crash would.
    pub(crate) fn crash(&mut self) {
        self.acceptors.lock().expect("not poisoned").clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn connect(&self) -> StdStream {
        connect(self.proxy)
    }

    /// Sends these bytes to the proxy and returns all it says.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may have hung up already, having seen enough.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_all(&mut stream)
    }

    /// A GET through the proxy.
    pub(crate) fn get(&self, url: &str) -> String {
        let host = url
            .strip_prefix("http://")
            .expect("a URL")
            .split('/')
            .next()
            .expect("valid");
        self.raw(
            format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    }

    /// Asks for a tunnel; the stream, and the first line of the answer.
    pub(crate) fn tunnel(&self, target: &str) -> (StdStream, String) {
        let mut stream = self.connect();
        let ask = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(ask.as_bytes()).expect("it listens");
        let head = read_head(&mut stream);
        (stream, head)
    }

    /// The codes of all decisions so far.
    pub(crate) fn codes(&self) -> Vec<&'static str> {
        let decided = self.seen.decided.lock().expect("not poisoned");
        decided
            .iter()
            .map(|event| event.decision.reason.code())
            .collect()
    }

    pub(crate) fn denied_hosts(&self) -> Vec<String> {
        let decided = self.seen.decided.lock().expect("not poisoned");
        let denied = decided.iter().filter(|event| !event.decision.allowed);
        let host = |host: &Result<brig_hosts::Host, String>| match host {
            Ok(host) => host.to_string(),
            Err(text) => text.clone(),
        };
        denied.map(|event| host(&event.decision.host)).collect()
    }

    pub(crate) fn last_denial(&self) -> String {
        let decided = self.seen.decided.lock().expect("not poisoned");
        let denied = decided.iter().rev().find(|event| !event.decision.allowed);
        denied.map_or(String::new(), |event| event.decision.to_string())
    }

    pub(crate) fn dialled(&self) -> Vec<String> {
        let dialled = self.seen.dialled.lock().expect("not poisoned");
        dialled.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn looked_up(&self) -> Vec<String> {
        self.seen.looked_up.lock().expect("not poisoned").clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.crash();
    }
}

fn serve_dns(gateway: &Gateway, socket: UdpSocket) {
    let socket = DnsSocket::new(socket.into(), gateway.clone()).expect("a socket");
    tokio::spawn(async move { socket.serve().await });
}

pub(crate) fn connect(address: SocketAddr) -> StdStream {
    let stream = StdStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("valid");
    stream
}

pub(crate) fn read_all(stream: &mut StdStream) -> String {
    let mut all = Vec::new();
    // A reset after the answer is no matter.
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Byte for byte, so that nothing behind the head is taken.
pub(crate) fn read_head(stream: &mut StdStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Whether the other side has closed, within a time that is long even on a loaded machine.
pub(crate) fn is_closed(stream: &mut StdStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("valid");
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                );
            }
        }
    }
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `good.example` on ports 80, 443 and 8080 leads to the server.
pub(crate) fn lab(server: &server::Server) -> Lab {
    let lab = Lab::new(allowing(&["good.example", "good.example:8080"]));
    lab.name("good.example", &[PUBLIC]);
    for port in [80, 443, 8080] {
        lab.route(PUBLIC, port, server.address);
    }
    lab
}

/// CONNECT over SOCKS5 with the host as a name; the answer.
pub(crate) fn socks(lab: &Lab, target: &str) -> Vec<u8> {
    let (host, port) = target.rsplit_once(':').expect("a port");
    let host = host.trim_matches(['[', ']']);
    let mut stream = lab.connect();
    let mut ask = vec![5, 1, 0, 5, 1, 0, 3, host.len() as u8];
    ask.extend_from_slice(host.as_bytes());
    ask.extend_from_slice(&port.parse::<u16>().expect("a port").to_be_bytes());
    stream.write_all(&ask).expect("it listens");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..2], [5, 0], "no authentication");
    answer[2..].to_vec()
}
