//! The doors of a sandbox with a network: sockets that the guest opens in its namespace and hands
//! out. Nothing else there leads anywhere.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use brig_egress::Rules;
use brig_sandbox::doors::doors;
use brig_sandbox::network::{Door, Network};
use brig_sandbox::{Error, Plan, Result};
use brig_wire::Transport::{Tcp, Udp};
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getsockname, ipproto, sockopt};

/// The addresses that DNS hands out: the default of the gateway's pool.
const POOL: ([u8; 4], u8) = ([198, 18, 0, 0], 15);

/// What the guest is to open.
pub fn plan(plan: &Plan) -> Result<Option<brig_wire::Network>> {
    if !plan.network().is_on() {
        return Ok(None);
    }
    let doors = doors(plan).iter().map(|(door, _)| *door).collect();
    Ok(Some(brig_wire::Network { range: POOL, doors }))
}

/// Serves what the guest has handed out, in the order of the plan.
pub fn serve(plan: &Plan, sockets: Vec<OwnedFd>) -> Result<Network> {
    let doors = doors(plan);
    if doors.len() != sockets.len() {
        let problem = format!(
            "the guest opened {} of {} doors",
            sockets.len(),
            doors.len()
        );
        return Err(Error::Protocol(problem));
    }
    let doors = doors
        .into_iter()
        .zip(sockets)
        .map(|((door, entry), socket)| {
            check(&door, &socket)?;
            Ok(match entry {
                Some(entry) => Door::Tcp(socket, entry),
                None => Door::Udp(socket),
            })
        });
    let doors = doors.collect::<Result<_>>()?;
    Network::start(Rules::new(plan.network().rules()), doors)
}

/// The guest is not trusted: what it hands out must be what it was told to open.
fn check(door: &brig_wire::Door, socket: &OwnedFd) -> Result<()> {
    let (kind, protocol) = match door.transport {
        Tcp => (SocketType::STREAM, ipproto::TCP),
        Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let is_meant = || -> rustix::io::Result<bool> {
        let address = SocketAddrV4::new(door.address.into(), door.port);
        Ok(sockopt::socket_domain(socket)? == AddressFamily::INET
            && sockopt::socket_type(socket)? == kind
            && sockopt::socket_protocol(socket)? == Some(protocol)
            && sockopt::socket_acceptconn(socket)? == (door.transport == Tcp)
            && getsockname(socket)? == SocketAddrAny::from(address))
    };
    match is_meant() {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(Error::Protocol(format!(
            "the guest handed out something else for port {}",
            door.port
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn door(transport: brig_wire::Transport, port: u16) -> brig_wire::Door {
        brig_wire::Door {
            transport,
            address: [127, 0, 0, 1],
            port,
        }
    }

    #[test]
    fn only_the_socket_that_was_asked_for_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let (accepted, _) = listener.accept().expect("a connection");
        let elsewhere = TcpListener::bind("127.0.0.2:0").expect("a port");
        let other = elsewhere.local_addr().expect("an address").port();
        let datagrams = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let udp = datagrams.local_addr().expect("an address").port();
        let folder = tempfile::tempdir().expect("a folder");
        let unix = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let six = TcpListener::bind("[::1]:0").map(OwnedFd::from);
        let file = std::fs::File::open("/dev/null").expect("a file");

        let listener = OwnedFd::from(listener);
        assert!(check(&door(Tcp, port), &listener).is_ok(), "control");
        let datagrams = OwnedFd::from(datagrams);
        assert!(check(&door(Udp, udp), &datagrams).is_ok(), "control");

        assert!(check(&door(Tcp, port + 1), &listener).is_err(), "port");
        assert!(check(&door(Udp, port), &listener).is_err(), "transport");
        assert!(check(&door(Tcp, udp), &datagrams).is_err(), "transport");
        assert!(
            check(&door(Tcp, other), &elsewhere.into()).is_err(),
            "address"
        );
        assert!(
            check(&door(Tcp, port), &accepted.into()).is_err(),
            "connected"
        );
        let local = client.local_addr().expect("an address").port();
        assert!(
            check(&door(Tcp, local), &client.into()).is_err(),
            "connected"
        );
        assert!(check(&door(Tcp, port), &unix.into()).is_err(), "family");
        assert!(check(&door(Tcp, port), &file.into()).is_err(), "no socket");
        if let Ok(six) = six {
            assert!(check(&door(Tcp, port), &six).is_err(), "family");
        }
    }
}
