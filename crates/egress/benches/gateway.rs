//! What the gateway costs, beside the same without it. `cargo bench -p brig-egress`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_egress::{
    Closed, Decided, Dial, Gateway, Host, Layer, LayerKind, Limits, ListenerKind, Name, Protocol,
    Record, Resolve, Rule, RuleSet,
};
use rustix::pipe::SpliceFlags;

const BYTES: usize = 2 << 30;
const ROUNDS: usize = 7;
const CONNECTIONS: usize = 5000;

struct Loopback(SocketAddr);

#[async_trait]
impl Resolve for Loopback {
    async fn resolve(&self, _: &Name) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::new(93, 184, 216, 34).into()])
    }
}

#[async_trait]
impl Dial for Loopback {
    async fn dial(&self, _: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        tokio::net::TcpStream::connect(self.0).await
    }
}

struct Nowhere;

impl Record for Nowhere {
    fn decided(&self, _: &Decided) -> io::Result<()> {
        Ok(())
    }

    fn closed(&self, _: &Closed) {}
}

fn rule(text: &str) -> Rule {
    Rule::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Sends back the first byte; after an `S`, sends without end.
fn server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    for mut stream in listener.incoming().flatten() {
        thread::Builder::new()
            .stack_size(64 * 1024)
            .spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    if byte == *b"S" {
                        let block = vec![0; 256 * 1024];
                        while stream.write_all(&block).is_ok() {}
                        return;
                    }
                    if stream.write_all(&byte).is_err() {
                        return;
                    }
                }
            })
            .expect("a thread");
    }
}

struct Server(Child, SocketAddr);

impl Server {
    fn start() -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut child = Command::new(own)
            .args(["--bench", "server"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("its output");
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).expect("its address");
        let address = line.trim().parse().expect("an address");
        Self(child, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tunnel(proxy: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream
        .write_all(b"CONNECT a.example:7 HTTP/1.1\r\nHost: a.example:7\r\n\r\n")
        .expect("open");
    let mut head = Vec::new();
    let mut buffer = [0; 512];
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut buffer).expect("an answer");
        assert!(length > 0, "closed");
        head.extend_from_slice(&buffer[..length]);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    stream
}

/// The least that any relay outside the kernel does: one thread that waits and splices, and neither
/// decides nor counts. What it loses is lost to all of them on this machine.
fn plain_relay(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut upstream = direct(server);
            let mut asked = [0; 2];
            client.read_exact(&mut asked).expect("open");
            upstream.write_all(&asked).expect("open");
            let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
            let _ = rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20);
            let splice = |from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes| {
                rustix::pipe::splice(from, None, to, None, bytes, SpliceFlags::MOVE).unwrap_or(0)
            };
            loop {
                let mut left = splice(upstream.as_fd(), writer.as_fd(), 1 << 20);
                if left == 0 {
                    break;
                }
                while left > 0 {
                    match splice(reader.as_fd(), client.as_fd(), left) {
                        0 => break,
                        moved => left -= moved,
                    }
                }
                if left > 0 {
                    break;
                }
            }
        }
    });
    address
}

fn direct(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Connects and gets one byte back, many times; sorted.
fn latency(rounds: usize, connect: impl Fn() -> TcpStream) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            let mut stream = connect();
            stream.write_all(&[0]).expect("open");
            stream.read_exact(&mut [0]).expect("an echo");
            began.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn throughput(mut stream: TcpStream) -> f64 {
    stream.write_all(b"\0S").expect("open");
    let mut buffer = vec![0; 256 * 1024];
    let (mut total, began) = (0, Instant::now());
    while total < BYTES {
        total += stream.read(&mut buffer).expect("bytes");
    }
    total as f64 / began.elapsed().as_secs_f64() / 1e9
}

/// All three in turn, so that whatever else runs meanwhile meets each of them.
fn streams(server: SocketAddr, plain: SocketAddr, proxy: SocketAddr) {
    let rates: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| [direct(server), direct(plain), tunnel(proxy)].map(throughput))
        .collect();
    let median = |of: &dyn Fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = rates.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[ROUNDS / 2]
    };
    println!(
        "one stream: direct {:.2} GB/s, plain relay {:.2} GB/s, CONNECT {:.2} GB/s",
        median(&|rate| rate[0]),
        median(&|rate| rate[1]),
        median(&|rate| rate[2]),
    );
    println!(
        "one stream, ratios: CONNECT to direct {:.2}, plain relay to direct {:.2}, CONNECT to plain relay {:.2}",
        median(&|rate| rate[2] / rate[0]),
        median(&|rate| rate[1] / rate[0]),
        median(&|rate| rate[2] / rate[1]),
    );
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    if arguments.iter().any(|argument| argument == "server") {
        return server();
    }
    decisions();

    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let layer = Layer::new(LayerKind::Run).allow([rule("a.example:7/tcp")]);
    let gateway = Gateway::builder(RuleSet::new(vec![layer]), Nowhere)
        .resolve(Loopback(server.1))
        .dial(Loopback(server.1))
        .limits(Limits::default())
        .build();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = listener.local_addr().expect("an address");
    let _acceptor = {
        let _runtime = runtime.enter();
        let listeners = vec![(listener.into(), ListenerKind::Proxy)];
        gateway.accept(listeners).expect("an acceptor")
    };

    let rounds = 4000;
    latency(500, || tunnel(proxy));
    let plain = latency(rounds, || direct(server.1));
    let through = latency(rounds, || tunnel(proxy));
    for (name, at) in [("p50", rounds / 2), ("p99", rounds * 99 / 100)] {
        let added = through[at].saturating_sub(plain[at]);
        println!(
            "connect and one byte, {name}: direct {:?}, CONNECT {:?}, added {added:?}",
            plain[at], through[at]
        );
    }

    streams(server.1, plain_relay(server.1), proxy);

    let before = memory();
    let began = Instant::now();
    let mut open: Vec<TcpStream> = (0..CONNECTIONS).map(|_| tunnel(proxy)).collect();
    for stream in &mut open {
        stream.write_all(&[0]).expect("open");
    }
    for stream in &mut open {
        stream.read_exact(&mut [0]).expect("an echo");
    }
    println!(
        "{CONNECTIONS} connections at once: {:?}, {} KiB of memory each",
        began.elapsed(),
        memory().saturating_sub(before) / CONNECTIONS as u64
    );
}

fn decisions() {
    let names = (0..7000).map(|n| format!("host-{n}.example.com"));
    let below = (0..2000).map(|n| format!("*.zone-{n}.example.net"));
    let networks = (0..1000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250));
    let rules: Vec<Rule> = names
        .chain(below)
        .chain(networks)
        .map(|text| rule(&text))
        .collect();
    assert_eq!(rules.len(), 10_000);
    let set = RuleSet::new(vec![Layer::new(LayerKind::Policy).allow(rules)]);
    let hosts: Vec<Host> = [
        "host-6999.example.com",
        "a.b.c.zone-1999.example.net",
        "nobody.example.org",
        "10.3.249.7",
        "8.8.8.8",
    ]
    .iter()
    .map(|text| Host::parse(text).unwrap_or_else(|error| panic!("{error}")))
    .collect();
    let rounds = 1_000_000;
    let began = Instant::now();
    let mut allowed = 0;
    for round in 0..rounds {
        allowed += usize::from(
            set.decide(&hosts[round % hosts.len()], 443, Protocol::Connect)
                .allowed,
        );
    }
    assert_eq!(allowed, rounds / 5 * 3);
    println!(
        "one decision with 10,000 rules: {:?}",
        began.elapsed() / u32::try_from(rounds).expect("few rounds")
    );
}
