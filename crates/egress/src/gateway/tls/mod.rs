//! The unencrypted part of a TLS handshake: every ClientHello, and the first messages of the server.
//!
//! A client may send two ClientHellos, the second one after a HelloRetryRequest, with other records in
//! between (a ChangeCipherSpec, early data). Only a ServerHello ends that.
//!
//! By hand and not with `rustls` or `tls-parser`: the gateway does not terminate TLS, it only has to
//! know which name the server will see. So it accepts exactly what can be read in one way. General
//! parsers accept more, for example a duplicate extension, where client and server could disagree about
//! the name.

mod client_hello;
mod record;
#[cfg(test)]
mod tests;

pub use client_hello::ClientHello;
use client_hello::client_hello;
use record::{HEADER, Length, Record, handshake, record};

/// The longest ClientHello. Usual ones have up to 2 KiB, with post-quantum keys.
const LONGEST: usize = 32 * 1024;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
pub(in crate::gateway) const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The random value of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The next bytes of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientBytes {
    More,
    /// A record of this length, which can be forwarded.
    Pass(usize),
    /// A complete ClientHello, and its length with record headers.
    Hello(ClientHello, usize),
    Malformed(&'static str),
}

/// Parses what a client sends until the server has accepted a ClientHello.
#[derive(Debug, Default)]
pub(super) struct ClientSide {
    hellos: u8,
}

impl ClientSide {
    /// `bytes` is everything that was received and not forwarded yet.
    pub(super) fn next(&mut self, bytes: &[u8]) -> ClientBytes {
        let (kind, record) = match record(bytes) {
            Record::More => return ClientBytes::More,
            Record::Wrong => return ClientBytes::Malformed("it is not a TLS record"),
            Record::Partial(kind) => (kind, None),
            Record::Whole(kind, body) => (kind, Some(body)),
        };
        match (kind, self.hellos) {
            (HANDSHAKE, 0 | 1) => match hello(bytes) {
                sent @ ClientBytes::Hello(..) => {
                    self.hellos += 1;
                    sent
                }
                sent => sent,
            },
            (HANDSHAKE, _) => ClientBytes::Malformed("it has a third TLS ClientHello"),
            (_, 0) => ClientBytes::Malformed("it does not start with a TLS ClientHello"),
            (CHANGE_CIPHER_SPEC | ALERT | DATA, _) => match record {
                Some(body) => ClientBytes::Pass(HEADER + body.len()),
                None => ClientBytes::More,
            },
            _ => ClientBytes::Malformed("it is not a TLS record"),
        }
    }
}

/// The next bytes of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerBytes {
    More,
    /// So many bytes can be forwarded. The client may send another ClientHello.
    Pass(usize),
    /// A ServerHello: what follows is encrypted.
    Done,
    /// Not TLS.
    Other,
}

/// Parses the answer to a ClientHello. `bytes` is everything that was received and not forwarded yet.
pub(super) fn server_bytes(bytes: &[u8]) -> ServerBytes {
    match record(bytes) {
        Record::More => return ServerBytes::More,
        Record::Partial(ALERT | CHANGE_CIPHER_SPEC) => return ServerBytes::More,
        Record::Whole(ALERT | CHANGE_CIPHER_SPEC, body) => {
            return ServerBytes::Pass(HEADER + body.len());
        }
        Record::Partial(HANDSHAKE) | Record::Whole(HANDSHAKE, _) => {}
        _ => return ServerBytes::Other,
    }
    let (message, length) = match handshake(bytes) {
        Some(gathered) => gathered,
        None => return ServerBytes::Other,
    };
    match message.as_slice() {
        [] => ServerBytes::More,
        // Type, length, version, random.
        [SERVER_HELLO, _, _, _, _, _, random @ ..] => match random.first_chunk() {
            None => ServerBytes::More,
            Some(&RETRY) => match length {
                Length::More => ServerBytes::More,
                Length::Ends(length) => ServerBytes::Pass(length),
                Length::Beyond => ServerBytes::Other,
            },
            Some(_) => ServerBytes::Done,
        },
        [SERVER_HELLO, ..] => ServerBytes::More,
        _ => ServerBytes::Other,
    }
}

/// The ClientHello at the beginning of the bytes, in one or several records.
fn hello(bytes: &[u8]) -> ClientBytes {
    const UNREADABLE: ClientBytes = ClientBytes::Malformed("its TLS ClientHello is invalid");
    let Some((message, length)) = handshake(bytes) else {
        return UNREADABLE;
    };
    match (message.split_first_chunk::<4>(), length) {
        _ if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) => {
            ClientBytes::Malformed("it does not start with a TLS ClientHello")
        }
        (Some((_, body)), Length::Ends(length)) => match client_hello(body) {
            Some(hello) => ClientBytes::Hello(hello, length),
            None => UNREADABLE,
        },
        (_, Length::More) if bytes.len() < 2 * LONGEST => ClientBytes::More,
        // Another message follows in the same record, which the server would read too.
        _ => UNREADABLE,
    }
}

/// The ClientHello in complete records, for fuzzing.
pub fn tls_hello(bytes: &[u8]) -> Option<ClientHello> {
    // The other direction parses the same records.
    let _ = server_bytes(bytes);
    match ClientSide::default().next(bytes) {
        ClientBytes::Hello(hello, length) => {
            assert!(length <= bytes.len());
            Some(hello)
        }
        ClientBytes::Pass(_) => unreachable!("nothing passes before a hello"),
        ClientBytes::More | ClientBytes::Malformed(_) => None,
    }
}
