//! The network of a sandbox: sockets that the guest opens in its network namespace and hands out. No
//! interface leads out of it.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use brig_egress::{ListenerKind, Ports, Rules};
use brig_guest_host::listeners::{Service, listeners};
use brig_guest_host::network::{Network, SandboxListener};
use brig_guest_host::tools::ToolServer;
use brig_sandbox::{Error, Plan, Result};
use brig_wire::Transport::{Tcp, Udp};
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getsockname, ipproto, sockopt};

use crate::commands::TOOLS;
use crate::sink::{self, Sink};

/// The first of the addresses that DNS hands out: the default of the gateway's pool.
const POOL: [u8; 4] = [198, 18, 0, 0];

/// Listeners that can be added while the sandbox runs. Fewer if rules name every port: then only later
/// rules need them.
const FREE: u8 = 16;
const FEW: u8 = 4;

/// What the guest has to open.
pub(crate) fn plan(plan: &Plan) -> brig_wire::Network {
    let network = plan.network();
    let on = network.is_on();
    let mut rules = network.layers.iter().flat_map(|layer| &layer.allow);
    let names_all_ports = !network.open && rules.all(|rule| rule.ports() != Ports::Any);
    brig_wire::Network {
        address: on.then_some(POOL),
        listeners: listeners(plan)
            .iter()
            .map(|(listener, _)| *listener)
            .collect(),
        free: match (on, names_all_ports) {
            (false, _) => 0,
            (true, true) => FEW,
            (true, false) => FREE,
        },
    }
}

/// Sockets that the guest has handed out.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub listeners: Vec<OwnedFd>,
    /// Unbound TCP sockets.
    pub free: Vec<OwnedFd>,
    /// Raw sockets, which receive every packet.
    pub sink: Vec<OwnedFd>,
}

/// Serves what the guest has handed out, in the order of the plan.
pub(crate) fn serve(plan: &Plan, sockets: Sockets) -> Result<(Network, Sink, Option<ToolServer>)> {
    let expected = listeners(plan);
    if expected.len() != sockets.listeners.len() {
        let problem = format!(
            "the guest opened {} of {} listeners",
            sockets.listeners.len(),
            expected.len()
        );
        return Err(Error::Protocol(problem));
    }
    let ports: Vec<u16> = expected
        .iter()
        .filter(|(_, service)| *service == Service::Gateway(ListenerKind::Transparent))
        .map(|(listener, _)| listener.port)
        .collect();
    let (mut listeners, mut tools) = (Vec::new(), None);
    for ((listener, service), socket) in expected.into_iter().zip(sockets.listeners) {
        check(&listener, &socket)?;
        match service {
            Service::Gateway(kind) => {
                if kind == ListenerKind::Transparent {
                    sink::filter_listener(&socket)?;
                }
                listeners.push(SandboxListener::Tcp(socket, kind));
            }
            Service::Dns => listeners.push(SandboxListener::Udp(socket)),
            Service::Tools => tools = Some(ToolServer::listening(plan.tools(), TOOLS, socket)?),
        }
    }
    let mut network = Network::start(Rules::new(plan.network().rules()), listeners)?;
    if !plan.network().is_on() {
        network = network.closed();
    }
    let sink = Sink::open(network.clone(), sockets.sink, sockets.free, &ports)?;
    Ok((network, sink, tools))
}

/// The guest is not trusted: what it hands out must be what it was told to open.
fn check(listener: &brig_wire::ListenerSpec, socket: &OwnedFd) -> Result<()> {
    let (kind, protocol) = match listener.transport {
        Tcp => (SocketType::STREAM, ipproto::TCP),
        Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let is_expected = || -> rustix::io::Result<bool> {
        let address = SocketAddrV4::new(listener.address.into(), listener.port);
        Ok(sockopt::socket_domain(socket)? == AddressFamily::INET
            && sockopt::socket_type(socket)? == kind
            && sockopt::socket_protocol(socket)? == Some(protocol)
            && sockopt::socket_acceptconn(socket)? == (listener.transport == Tcp)
            && getsockname(socket)? == SocketAddrAny::from(address))
    };
    match is_expected() {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(Error::Protocol(format!(
            "the guest passed an unexpected descriptor for port {}",
            listener.port
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn spec(transport: brig_wire::Transport, port: u16) -> brig_wire::ListenerSpec {
        brig_wire::ListenerSpec {
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
        assert!(check(&spec(Tcp, port), &listener).is_ok(), "control");
        let datagrams = OwnedFd::from(datagrams);
        assert!(check(&spec(Udp, udp), &datagrams).is_ok(), "control");

        assert!(check(&spec(Tcp, port + 1), &listener).is_err(), "port");
        assert!(check(&spec(Udp, port), &listener).is_err(), "transport");
        assert!(check(&spec(Tcp, udp), &datagrams).is_err(), "transport");
        assert!(
            check(&spec(Tcp, other), &elsewhere.into()).is_err(),
            "address"
        );
        assert!(
            check(&spec(Tcp, port), &accepted.into()).is_err(),
            "connected"
        );
        let local = client.local_addr().expect("an address").port();
        assert!(
            check(&spec(Tcp, local), &client.into()).is_err(),
            "connected"
        );
        assert!(check(&spec(Tcp, port), &unix.into()).is_err(), "family");
        assert!(check(&spec(Tcp, port), &file.into()).is_err(), "no socket");
        if let Ok(six) = six {
            assert!(check(&spec(Tcp, port), &six).is_err(), "family");
        }
    }
}
