//! What many connections at a time may hold.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream as StdStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::common::{PUBLIC, allowing, read_head};
use async_trait::async_trait;
use brig_egress::{Closed, Decided, Dial, Gateway, ListenerKind, Name, Record, Resolve};
use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
use tokio::net::TcpStream;

const CROWD: usize = 150;
/// What the last of them may have in one buffer; the kernel doubles it for its own needs.
const SHARE: usize = 2 * ((16 << 20) / CROWD);

/// Leads to one server, and keeps the last connection to it.
#[derive(Clone)]
struct Outside {
    server: SocketAddr,
    last: Arc<Mutex<Option<OwnedFd>>>,
}

#[async_trait]
impl Resolve for Outside {
    async fn resolve(&self, _: &Name) -> io::Result<Vec<IpAddr>> {
        Ok(vec![PUBLIC.parse().expect("an address")])
    }
}

#[async_trait]
impl Dial for Outside {
    async fn dial(&self, _: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.server).await?;
        let copy = stream.as_fd().try_clone_to_owned()?;
        *self.last.lock().expect("not poisoned") = Some(copy);
        Ok(stream)
    }
}

impl Record for Outside {
    fn decided(&self, _: &Decided) -> io::Result<()> {
        Ok(())
    }

    fn closed(&self, _: &Closed) {}
}

/// Receiving and sending.
fn buffers(socket: &impl AsFd) -> (usize, usize) {
    let receive = socket_recv_buffer_size(socket).expect("a socket");
    (receive, socket_send_buffer_size(socket).expect("a socket"))
}

#[test]
fn in_a_crowd_each_connection_has_its_share() {
    let server = crate::common::server::echoes();
    let outside = Outside {
        server,
        last: Arc::default(),
    };
    let gateway = Gateway::builder(allowing(&["good.example:7/tcp"]), outside.clone())
        .resolve(outside.clone())
        .dial(outside.clone())
        .build();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let inside = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = inside.local_addr().expect("an address");
    let mut crowd: Vec<StdStream> = Vec::new();
    let mut held = Vec::new();
    for number in 1..=CROWD {
        let mut client = StdStream::connect(address).expect("it listens");
        let (accepted, _) = inside.accept().expect("a connection");
        let copy = accepted.try_clone().expect("a copy");
        accepted.set_nonblocking(true).expect("a socket");
        let gateway = gateway.clone();
        runtime.spawn(async move {
            let stream = TcpStream::from_std(accepted).expect("a stream");
            gateway.connection(stream, ListenerKind::Proxy, None).await;
        });
        let ask = b"CONNECT good.example:7 HTTP/1.1\r\nHost: good.example:7\r\n\r\n";
        client.write_all(ask).expect("it listens");
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200"), "{number}: {head}");
        let last = outside.last.lock().expect("not poisoned").take();
        if number == 1 || number == CROWD {
            held.push((buffers(&copy), buffers(&last.expect("dialled"))));
        }
        crowd.push(client);
    }
    let [first, last] = held[..] else {
        panic!("{held:?}")
    };
    for (receive, send) in [last.0, last.1] {
        assert!(receive <= SHARE && send <= SHARE, "{last:?}");
    }
    assert!(
        first.1.1 > SHARE,
        "control: alone, it may hold more: {first:?}"
    );
    // All of them work.
    for (number, client) in crowd.iter_mut().enumerate() {
        client.write_all(&[0, number as u8]).expect("open");
    }
    for (number, client) in crowd.iter_mut().enumerate() {
        let mut answer = [0; 2];
        client.read_exact(&mut answer).expect("an echo");
        assert_eq!(answer, [0, number as u8]);
    }
}
