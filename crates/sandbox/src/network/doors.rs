//! Taking connections from sockets that were made inside. Whoever made one may have kept a copy, and
//! can change what both share: whether calls wait, and what accepted connections inherit. So one
//! thread of each sandbox accepts. If it is made to wait, only this sandbox has no network.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use brig_egress::Entry;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Connections on their way from the thread.
const WAITING: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);

/// Dropped, nothing is accepted any more.
#[derive(Debug)]
pub(super) struct Doors(Vec<OwnedFd>);

impl Doors {
    pub fn open(doors: Vec<(OwnedFd, Entry)>) -> io::Result<(Self, Receiver<(TcpStream, Entry)>)> {
        let copies = doors.iter().map(|(door, _)| door.try_clone());
        let own = Self(copies.collect::<io::Result<_>>()?);
        let (accepted, receiver) = channel(WAITING);
        thread::Builder::new()
            .name("doors".into())
            .spawn(move || accept_all(doors, &accepted))?;
        Ok((own, receiver))
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        // Wakes the thread, also one that waits in a call.
        for door in &self.0 {
            let _ = shutdown(door, Shutdown::Both);
        }
    }
}

fn accept_all(mut doors: Vec<(OwnedFd, Entry)>, accepted: &Sender<(TcpStream, Entry)>) {
    while !doors.is_empty() {
        let polled = doors
            .iter()
            .map(|(door, _)| PollFd::new(door, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let ready: Vec<bool> = polled
            .iter()
            .map(|door| !door.revents().is_empty())
            .collect();
        let mut ready = ready.into_iter();
        doors.retain(|(door, entry)| {
            !ready.next().unwrap_or(true) || accept(door, *entry, accepted)
        });
    }
}

/// Whether the door can still be used.
fn accept(door: &OwnedFd, entry: Entry, accepted: &Sender<(TcpStream, Entry)>) -> bool {
    match accept_with(door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(stream) => {
            // Inherited: closing it could wait for a client that never reads.
            let _ = set_socket_linger(&stream, None);
            accepted.blocking_send((stream.into(), entry)).is_ok()
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PERM | Errno::PROTO) => true,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            thread::sleep(PAUSE);
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

    use brig_egress::{Layer, LayerKind, RuleSet, Rules};
    use rustix::net::sockopt::socket_linger;

    use super::*;
    use crate::network::{Door, Network};

    fn door() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener.into(), address)
    }

    fn network(socket: OwnedFd) -> Network {
        let rules = RuleSet::new(vec![Layer::new(LayerKind::Run)]);
        let doors = vec![Door::Tcp(socket, Entry::Proxy)];
        Network::start(Rules::new(rules), doors).expect("a network")
    }

    /// What the proxy says, or nothing if it says nothing for that long.
    fn ask(address: SocketAddr, patience: Duration) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
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
        let (hostile, taken) = door();
        let copy = TcpListener::from(hostile.try_clone().expect("a copy"));
        let (honest, address) = door();
        let stolen = Arc::new(AtomicUsize::new(0));
        let (networks, asking) = runtime.block_on(async {
            let networks = (network(hostile), network(honest));
            // As the guest would: calls on it wait from now on, and the guest is there first.
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
            (networks, asking.await)
        });
        let (stolen, answer) = asking.expect("asked");
        assert!(stolen >= 50, "control: the guest took {stolen}");
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
        drop(networks);
    }

    #[test]
    fn closing_a_connection_never_waits_and_a_closed_door_ends_its_thread() {
        let (door, address) = door();
        set_socket_linger(&door, Some(Duration::from_secs(600))).expect("a socket");
        let bare = door.try_clone().expect("a copy");
        let client = TcpStream::connect(address).expect("it listens");
        let inherited = accept_with(&bare, SocketFlags::CLOEXEC).expect("a connection");
        let linger = socket_linger(&inherited).expect("a socket");
        assert!(linger.is_some(), "control: it is inherited");
        set_socket_linger(&inherited, None).expect("a socket");
        drop((client, inherited));

        let (doors, mut accepted) = Doors::open(vec![(door, Entry::Proxy)]).expect("doors");
        let client = TcpStream::connect(address).expect("it listens");
        let (stream, _) = accepted.blocking_recv().expect("a connection");
        assert_eq!(socket_linger(&stream).expect("a socket"), None);
        drop((client, doors));
        assert!(accepted.blocking_recv().is_none(), "the thread is gone");
        assert!(TcpStream::connect(address).is_err(), "nothing listens");
    }
}
