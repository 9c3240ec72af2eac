//! Addresses in the calls of a program, read from its memory.

use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;

use super::caller::parse;
use super::*;

const POOL: [u8; 4] = [127, 64, 0, 0];

fn addresses() -> Addresses {
    let listener = |address, port| brig_wire::ListenerSpec {
        transport: Transport::Tcp,
        address,
        port,
    };
    Addresses::new(&Container {
        listeners: vec![listener([127, 0, 0, 1], 3128), listener([0; 4], 443)],
        pool: POOL,
        ..Container::default()
    })
}

fn ipv4(family: u16, address: [u8; 4], port: u16) -> Vec<u8> {
    let parts = [&family.to_ne_bytes()[..], &port.to_be_bytes(), &address];
    [&parts.concat()[..], &[0; 8]].concat()
}

fn ipv6(address: Ipv6Addr, port: u16) -> Vec<u8> {
    let head = [&10u16.to_ne_bytes()[..], &port.to_be_bytes(), &[0; 4]].concat();
    [&head[..], &address.octets(), &[0; 4]].concat()
}

#[test]
fn an_address_is_read_as_the_kernel_reads_it() {
    let address = |text: &str| Some(text.parse().expect("an address"));
    assert_eq!(
        parse(&ipv4(2, [8, 8, 8, 8], 53), false),
        address("8.8.8.8:53")
    );
    let none = ipv4(0, [8, 8, 8, 8], 53);
    assert_eq!(parse(&none, true), address("8.8.8.8:53"), "a datagram");
    assert_eq!(parse(&none, false), None, "the end of a connection");
    assert_eq!(parse(&ipv4(1, [8, 8, 8, 8], 53), true), None, "a file");
    let mapped = "::ffff:192.0.2.9".parse().expect("an address");
    assert_eq!(parse(&ipv6(mapped, 9), false), address("192.0.2.9:9"));
    let real = "2001:db8::7".parse().expect("an address");
    assert_eq!(parse(&ipv6(real, 9), false), address("[2001:db8::7]:9"));
    // The scope may be missing, but nothing else.
    assert!(parse(&ipv6(real, 9)[..24], false).is_some());
    for bytes in [ipv4(2, [8, 8, 8, 8], 53), ipv6(real, 9)[..24].to_vec()] {
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length], true), None, "{length}");
        }
    }
}

#[test]
fn loopback_is_the_containers_own_but_for_what_stands_for_a_name() {
    let all = addresses();
    for (transport, to, unreachable) in [
        (Transport::Tcp, "169.254.169.254:80", true),
        (Transport::Udp, "8.8.8.8:53", true),
        (Transport::Tcp, "[2001:db8::1]:443", true),
        (Transport::Udp, "224.0.0.251:5353", true),
        (Transport::Tcp, "127.0.0.1:3128", false),
        (Transport::Tcp, "127.9.9.9:1", false),
        (Transport::Tcp, "0.0.0.0:1", false),
        (Transport::Tcp, "[::1]:1", false),
        (Transport::Tcp, "127.64.0.1:443", false),
        (Transport::Tcp, "127.64.0.1:5432", true),
        (Transport::Udp, "127.65.255.255:443", true),
        (Transport::Udp, "127.66.0.1:443", false),
    ] {
        let to = to.parse().expect("an address");
        assert_eq!(all.is_unreachable(transport, to), unreachable, "{to}");
    }
}

#[test]
fn what_a_call_names_is_read_of_its_caller() {
    let thread = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned();
    let all = addresses();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let named = ipv4(2, [192, 0, 2, 1], 5432);
    let at = named.as_ptr() as u64;
    let connect = |descriptor: i32, address: u64| Request::Connect {
        descriptor,
        address,
        length: 16,
    };
    let destination = |request: &Request| all.destination(thread, request).expect("readable");
    let found = destination(&connect(tcp.as_raw_fd(), at)).expect("unreachable");
    assert_eq!(found.transport, Transport::Tcp);
    assert_eq!(found.to, "192.0.2.1:5432".parse().expect("an address"));
    let found = destination(&connect(udp.as_raw_fd(), at)).expect("unreachable");
    assert_eq!(found.transport, Transport::Udp);
    for (descriptor, address) in [
        (unix.as_raw_fd(), at),
        (9999, at),
        (tcp.as_raw_fd(), 0),
        (tcp.as_raw_fd(), 8),
    ] {
        assert_eq!(destination(&connect(descriptor, address)), None);
    }

    // Two messages. The second one is a DNS query to an unreachable address.
    let (own, dns) = (ipv4(2, [127, 0, 0, 1], 9), ipv4(2, [192, 0, 2, 53], 53));
    let text = b"a question";
    let part = [text.as_ptr() as u64, text.len() as u64];
    let message = |name: &[u8]| {
        let mut words = [0u64; 8];
        words[..4].copy_from_slice(&[name.as_ptr() as u64, 16, part.as_ptr() as u64, 1]);
        words
    };
    let messages = [message(&own), message(&dns)];
    let sends = |count| Request::SendMessages {
        descriptor: udp.as_raw_fd(),
        messages: messages.as_ptr() as u64,
        count,
    };
    assert_eq!(destination(&sends(None)), None);
    assert_eq!(destination(&sends(Some(1))), None);
    let found = destination(&sends(Some(2))).expect("unreachable");
    assert_eq!(found.to, "192.0.2.53:53".parse().expect("an address"));
    assert_eq!(found.query, text);
}
