//! Accepts connections on listeners that the guest has opened.
//!
//! The guest may have kept a copy of a listener, and can change what both copies share: whether calls
//! block, and which options accepted connections inherit. So connections are accepted in a thread per
//! sandbox and not in the async runtime. If the guest makes that thread block, only its own sandbox
//! has no network.

use std::io;
use std::net::TcpStream as StdStream;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use super::{Gateway, ListenerKind};

/// Accepted connections that wait to be served.
const QUEUE: usize = 64;
/// When descriptors or memory are short.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Accepts and serves connections. When this is dropped, the listeners and all their connections are
/// closed.
#[derive(Debug)]
pub struct Acceptor {
    _listeners: Listeners,
    _serving: JoinSet<()>,
}

impl Gateway {
    /// Accepts and serves connections from now on. To be called in a runtime.
    pub fn accept(&self, listeners: Vec<(OwnedFd, ListenerKind)>) -> io::Result<Acceptor> {
        let (listeners, accepted) = Listeners::open(listeners)?;
        let mut serving = JoinSet::new();
        serving.spawn(serve(self.clone(), accepted));
        Ok(Acceptor {
            _listeners: listeners,
            _serving: serving,
        })
    }
}

impl Acceptor {
    /// Serves the connections of one listener by a function, at most `most` at a time. To be called in a runtime.
    pub fn serving<F, C>(listener: OwnedFd, most: usize, serve: F) -> io::Result<Self>
    where
        F: Fn(TcpStream) -> C + Send + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let (listeners, mut accepted) = Listeners::open(vec![(listener, ())])?;
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let stream = tokio::select! {
                    accepted = accepted.recv(), if connections.len() < most => match accepted {
                        Some((stream, ())) => stream,
                        None => break,
                    },
                    Some(_) = connections.join_next() => continue,
                };
                if let Ok(stream) = TcpStream::from_std(stream) {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve(stream));
                }
            }
            while connections.join_next().await.is_some() {}
        });
        Ok(Self {
            _listeners: listeners,
            _serving: serving,
        })
    }
}

/// Dropping this future closes all connections.
async fn serve(gateway: Gateway, mut accepted: Receiver<(StdStream, ListenerKind)>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, kind) = tokio::select! {
            accepted = accepted.recv() => match accepted {
                Some(accepted) => accepted,
                None => break,
            },
            Some(_) = connections.join_next() => continue,
        };
        let (Ok(dialled), Ok(stream)) = (stream.local_addr(), TcpStream::from_std(stream)) else {
            continue;
        };
        // Here and not in the task, so that the first connections get the slots, and not the first tasks.
        let Some(slot) = gateway.slot(kind) else {
            continue;
        };
        // Requests and answers are often small, and must not wait for more bytes.
        let _ = stream.set_nodelay(true);
        let gateway = gateway.clone();
        connections.spawn(async move {
            let dialled = Some(dialled);
            gateway.serve_stream(stream, kind, dialled, slot).await;
        });
    }
    while connections.join_next().await.is_some() {}
}

/// Copies of the listeners that the thread uses.
#[derive(Debug)]
struct Listeners(Vec<OwnedFd>);

impl Listeners {
    /// Connections are received with the tag of their listener.
    fn open<T: Copy + Send + 'static>(
        listeners: Vec<(OwnedFd, T)>,
    ) -> io::Result<(Self, Receiver<(StdStream, T)>)> {
        for (listener, _) in &listeners {
            rustix::io::ioctl_fionbio(listener, true)?;
        }
        let copies = listeners.iter().map(|(listener, _)| listener.try_clone());
        let own = Self(copies.collect::<io::Result<_>>()?);
        let (accepted, receiver) = channel(QUEUE);
        thread::Builder::new()
            .name("accept".into())
            .spawn(move || accept_all(listeners, &accepted))?;
        Ok((own, receiver))
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        // Closing the descriptors would not wake a thread that blocks in a call.
        for listener in &self.0 {
            let _ = shutdown(listener, Shutdown::Both);
        }
    }
}

fn accept_all<T: Copy>(mut listeners: Vec<(OwnedFd, T)>, accepted: &Sender<(StdStream, T)>) {
    while !listeners.is_empty() {
        let polled = listeners
            .iter()
            .map(|(listener, _)| PollFd::new(listener, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let ready: Vec<bool> = polled
            .iter()
            .map(|listener| !listener.revents().is_empty())
            .collect();
        let mut ready = ready.into_iter();
        listeners.retain(|(listener, tag)| {
            !ready.next().unwrap_or(true) || accept(listener, *tag, accepted)
        });
    }
}

/// Returns whether the listener can still be used.
fn accept<T>(listener: &OwnedFd, tag: T, accepted: &Sender<(StdStream, T)>) -> bool {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(stream) => {
            // Inherited from the listener. With it, closing could block until a client reads.
            let _ = set_socket_linger(&stream, None);
            accepted.blocking_send((stream.into(), tag)).is_ok()
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PERM | Errno::PROTO) => true,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            thread::sleep(RETRY_DELAY);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use rustix::net::sockopt::socket_linger;

    use super::*;
    use crate::{Closed, Decided, Layer, LayerKind, Record, RuleSet};

    struct Nowhere;

    impl Record for Nowhere {
        fn decided(&self, _: &Decided) -> io::Result<()> {
            Ok(())
        }
        fn closed(&self, _: &Closed) {}
    }

    fn listener() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener.into(), address)
    }

    fn proxy(socket: OwnedFd) -> Acceptor {
        let rules = RuleSet::new(vec![Layer::new(LayerKind::Run)]);
        let gateway = Gateway::builder(rules, Nowhere).build();
        let listeners = vec![(socket, ListenerKind::Proxy)];
        gateway.accept(listeners).expect("an acceptor")
    }

    /// What the proxy answers, or nothing if there is no answer in this time.
    fn ask(address: SocketAddr, patience: Duration) -> String {
        let mut stream = StdStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(patience)).expect("a socket");
        let _ = stream.write_all(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    #[test]
    fn a_copy_that_was_kept_makes_nobody_else_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (hostile, taken) = listener();
        let copy = TcpListener::from(hostile.try_clone().expect("a copy"));
        let (honest, address) = listener();
        let stolen = Arc::new(AtomicUsize::new(0));
        let (acceptors, asking) = runtime.block_on(async {
            let acceptors = (proxy(hostile), proxy(honest));
            // As a hostile guest would: calls on the listener block from now on, and the guest
            // accepts first.
            copy.set_nonblocking(false).expect("a socket");
            let count = stolen.clone();
            thread::spawn(move || {
                while copy.accept().is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            let asking = tokio::task::spawn_blocking(move || {
                let until = Instant::now() + Duration::from_secs(60);
                while stolen.load(Ordering::SeqCst) < 50 && Instant::now() < until {
                    ask(taken, Duration::from_millis(5));
                }
                let answer = ask(address, Duration::from_secs(60));
                (stolen.load(Ordering::SeqCst), answer)
            });
            (acceptors, asking.await)
        });
        let (stolen, answer) = asking.expect("asked");
        assert!(stolen >= 50, "control: the guest took {stolen}");
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
        drop(acceptors);
    }

    #[test]
    fn closing_a_connection_never_waits_and_a_closed_listener_ends_its_thread() {
        let (socket, address) = listener();
        set_socket_linger(&socket, Some(Duration::from_secs(600))).expect("a socket");
        let bare = socket.try_clone().expect("a copy");
        let client = StdStream::connect(address).expect("it listens");
        let inherited = accept_with(&bare, SocketFlags::CLOEXEC).expect("a connection");
        let linger = socket_linger(&inherited).expect("a socket");
        assert!(linger.is_some(), "control: it is inherited");
        set_socket_linger(&inherited, None).expect("a socket");
        drop((client, inherited));

        let opened = Listeners::open(vec![(socket, ListenerKind::Proxy)]);
        let (listeners, mut accepted) = opened.expect("a listener");
        let client = StdStream::connect(address).expect("it listens");
        let (stream, _) = accepted.blocking_recv().expect("a connection");
        assert_eq!(socket_linger(&stream).expect("a socket"), None);
        drop((client, listeners));
        assert!(accepted.blocking_recv().is_none(), "the thread is gone");
        assert!(StdStream::connect(address).is_err(), "nothing listens");
    }
}
