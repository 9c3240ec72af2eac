//! SOCKS5 (RFC 1928): CONNECT without authentication. By hand: the request is 10 lines of parsing, and
//! SOCKS crates resolve and dial themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use brig_hosts::Host;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::stream::Prefixed;
use super::{Gateway, Stream, refuse, tunnel};
use crate::decision::{Decision, Protocol, Reason};

pub(super) const VERSION: u8 = 5;

const DONE: u8 = 0;
const FAILED: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// The requested host and port and the length of the request, `None` if it is incomplete, or the code
/// of the answer and the problem.
pub(super) type Request = Result<Option<(Result<Host, String>, u16, usize)>, (u8, &'static str)>;

/// Parses a request, as far as it was received.
pub fn request(bytes: &[u8]) -> Request {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let [VERSION, command, _, kind] = *head else {
        return Err((FAILED, "the version is not 5"));
    };
    if command != 1 {
        return Err((NO_SUCH_COMMAND, "only CONNECT is supported"));
    }
    let length = match (kind, rest.first()) {
        (1, _) => 4,
        (4, _) => 16,
        (3, Some(length)) => 1 + usize::from(*length),
        (3, None) => return Ok(None),
        _ => return Err((NO_SUCH_ADDRESS, "an unknown address type")),
    };
    let Some((address, after)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    let Some(port) = after.first_chunk::<2>() else {
        return Ok(None);
    };
    let host = match (kind, address) {
        (3, [_, name @ ..]) => match std::str::from_utf8(name) {
            Ok(text) => Host::parse(text).map_err(|_| text.to_owned()),
            Err(_) => Err(String::from_utf8_lossy(name).into_owned()),
        },
        _ => Ok(Host::from(address_of(address))),
    };
    Ok(Some((host, u16::from_be_bytes(*port), 4 + length + 2)))
}

fn address_of(bytes: &[u8]) -> IpAddr {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => Ipv4Addr::from(v4).into(),
        (_, Ok(v6)) => Ipv6Addr::from(v6).into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

pub(super) async fn serve<S: Stream>(gateway: &Gateway, mut stream: Prefixed<S>) {
    let asked = timeout(gateway.shared.limits.asking, ask(&mut stream)).await;
    let (host, port) = match asked {
        Ok(Some(Ok(asked))) => asked,
        Ok(Some(Err((code, what)))) => {
            let reason = Reason::Protocol(what.to_owned());
            gateway.record_malformed("(SOCKS5 request)", Protocol::Socks5, reason);
            // The refusal of methods was sent already.
            return match code {
                0xff => refuse::close_gracefully(stream).await,
                code => refuse::answer_and_close(stream, &answer(code)).await,
            };
        }
        Ok(None) => return,
        Err(_) => {
            let reason = Reason::Limit("the SOCKS5 request was too slow");
            gateway.record_malformed("(SOCKS5 request)", Protocol::Socks5, reason);
            return;
        }
    };
    let host = match host {
        Ok(host) if port > 0 => host,
        Ok(host) => return malformed(gateway, stream, &host.to_string()).await,
        Err(text) => return malformed(gateway, stream, &text).await,
    };
    match gateway.open(&host, port, Protocol::Socks5).await {
        Ok(opened) => {
            if stream.write_all(&answer(DONE)).await.is_ok() {
                tunnel::serve(gateway, stream, opened).await;
            }
        }
        Err(decision) => refuse::answer_and_close(stream, &answer(code(&decision))).await,
    }
}

async fn malformed<S: Stream>(gateway: &Gateway, stream: Prefixed<S>, text: &str) {
    let reason = Reason::Malformed("it is not a valid host with a port".to_owned());
    gateway.record_malformed(text, Protocol::Socks5, reason);
    refuse::answer_and_close(stream, &answer(NOT_ALLOWED)).await;
}

type Requested = Result<(Result<Host, String>, u16), (u8, &'static str)>;

/// Reads the greeting and the request. `None` if the client has gone away.
async fn ask<S: Stream>(stream: &mut Prefixed<S>) -> Option<Requested> {
    let methods = loop {
        if let [_, count, rest @ ..] = stream.prefix()
            && let Some(methods) = rest.get(..usize::from(*count))
        {
            break methods;
        }
        more(stream).await?;
    };
    let open = methods.contains(&0);
    let length = 2 + methods.len();
    stream.advance(length);
    if !open {
        let _ = stream.write_all(&[VERSION, 0xff]).await;
        return Some(Err((
            0xff,
            "only SOCKS5 without authentication is supported",
        )));
    }
    stream.write_all(&[VERSION, 0]).await.ok()?;
    loop {
        match request(stream.prefix()) {
            Ok(Some((host, port, length))) => {
                stream.advance(length);
                return Some(Ok((host, port)));
            }
            Ok(None) => more(stream).await?,
            Err(refused) => return Some(Err(refused)),
        }
    }
}

async fn more<S: Stream>(stream: &mut Prefixed<S>) -> Option<()> {
    (stream.fill().await.ok()? > 0).then_some(())
}

fn code(decision: &Decision) -> u8 {
    match decision.reason {
        Reason::Unresolved(_) | Reason::Unreachable(_) => UNREACHABLE,
        Reason::Unrecorded | Reason::Limit(_) => FAILED,
        _ => NOT_ALLOWED,
    }
}

fn answer(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_or_not_at_all() {
        let whole = b"\x05\x01\x00\x03\x05a.com\x01\xbb";
        for cut in 0..whole.len() {
            assert_eq!(request(&whole[..cut]), Ok(None));
        }
        let host = Host::parse("a.com").map_err(|_| String::new());
        assert_eq!(request(whole), Ok(Some((host, 443, whole.len()))));
        let mapped = b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01\0\x50";
        let Ok(Some((Ok(host), 80, 22))) = request(mapped) else {
            panic!("an address is read");
        };
        assert_eq!(host.to_string(), "127.0.0.1");
        assert_eq!(
            request(b"\x05\x03\x00\x01\0\0\0\0\0\0"),
            Err((7, "only CONNECT is supported"))
        );
        assert_eq!(
            request(b"\x05\x02\x00\x01\0\0\0\0\0\0"),
            Err((7, "only CONNECT is supported"))
        );
        assert!(request(b"\x05\x01\x00\x02").is_err());
        assert!(request(b"\x04\x01\x00\x50").is_err());
    }
}
