//! A connection to one host. Unless a rule allows any protocol there, it must be TLS, where every
//! ClientHello names the requested host, or plain HTTP, where every request is for it.

use brig_hosts::Host;
use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::first::{FirstBytes, first_bytes};
use super::handshake::End;
use super::meter::Ticket;
use super::open::Opened;
use super::refuse::{TLS_ALERT, answer_and_close};
use super::relay::{IDLE, relay};
use super::stream::Prefixed;
use super::{Gateway, Stream, handshake, http};
use crate::decision::Reason;

const NEITHER: &str = "the protocol is neither TLS nor HTTP";
const SERVER_FIRST: &str = "the server sends first, so the protocol is neither TLS nor HTTP";
pub(super) const NOT_TLS: &str = "the server does not respond with TLS";
const SLOW: Reason = Reason::Limit("the client was too slow to start");

pub(super) async fn serve<S: Stream>(gateway: &Gateway, mut client: Prefixed<S>, opened: Opened) {
    let Opened { stream, mut ticket } = opened;
    if ticket.decision.raw {
        return relay(client, stream, &ticket).await;
    }
    let begun = tokio::select! {
        begun = begin(gateway, &mut client, &stream, &ticket) => begun,
        () = ticket.revoked() => return ticket.ends(Reason::Revoked),
    };
    let what = match begun {
        Opening::Speaks(FirstBytes::Tls) => return tls(gateway, client, stream, ticket).await,
        Opening::Speaks(FirstBytes::Http) => {
            let opened = Opened { stream, ticket };
            return Box::pin(http::serve_one_host(gateway, client, opened)).await;
        }
        Opening::Speaks(FirstBytes::Http2) => {
            let what = "HTTP/2 without TLS is not supported";
            return refuse(gateway, &ticket, Reason::Protocol(what.to_owned()));
        }
        Opening::Slow => return refuse(gateway, &ticket, SLOW),
        Opening::Closed => return,
        Opening::Speaks(_) => NEITHER,
        Opening::ServerFirst => SERVER_FIRST,
    };
    if !is_open_to_raw(gateway, &ticket) {
        return refuse(gateway, &ticket, Reason::Raw(what));
    }
    // No byte was forwarded until here. From now on, none is inspected.
    ticket.decision = ticket.decision.as_raw();
    match gateway.record_allowed(ticket.decision.clone(), ticket.address) {
        Ok(_) => relay(client, stream, &ticket).await,
        Err(decision) => ticket.ends(decision.reason),
    }
}

fn is_open_to_raw(gateway: &Gateway, ticket: &Ticket) -> bool {
    let rules = gateway.shared.rules.current();
    let port = ticket.decision.port;
    port.is_some_and(|port| rules.is_open_to_raw(port))
}

fn refuse(gateway: &Gateway, ticket: &Ticket, reason: Reason) {
    ticket.ends(reason.clone());
    gateway.record_denied_at(ticket.decision.but(reason), ticket.address);
}

/// How a connection starts.
enum Opening {
    Speaks(FirstBytes),
    ServerFirst,
    /// One side has closed it without sending anything.
    Closed,
    Slow,
}

/// Waits until the client's protocol is known. No byte of either side is forwarded before.
async fn begin<S: Stream>(
    gateway: &Gateway,
    client: &mut Prefixed<S>,
    upstream: &TcpStream,
    ticket: &Ticket,
) -> Opening {
    let limits = &gateway.shared.limits;
    let mut byte = [0];
    let mut until = Instant::now() + limits.idle;
    let mut silent = client.prefix().is_empty();
    if !silent {
        until = Instant::now() + limits.asking;
    }
    loop {
        match (first_bytes(client.prefix()), ticket.decision.port) {
            (FirstBytes::More, _) => {}
            // Treated as HTTP, so that the client gets an error that it can show.
            (FirstBytes::Other, Some(80)) => return Opening::Speaks(FirstBytes::Http),
            (first, _) => return Opening::Speaks(first),
        }
        tokio::select! {
            filled = timeout_at(until, client.fill()) => match filled {
                Ok(Ok(0)) if client.prefix().is_empty() && !is_open_to_raw(gateway, ticket) => {
                    return Opening::Closed;
                }
                Ok(Ok(0)) => return Opening::Speaks(FirstBytes::Other),
                Ok(Ok(_)) if silent => {
                    silent = false;
                    until = Instant::now() + limits.asking;
                }
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Opening::Closed,
                Err(_) => return Opening::Slow,
            },
            peeked = upstream.peek(&mut byte), if silent => match peeked {
                Ok(1..) => return Opening::ServerFirst,
                Ok(0) | Err(_) => return Opening::Closed,
            },
        }
    }
}

async fn tls<S: Stream>(
    gateway: &Gateway,
    mut client: Prefixed<S>,
    stream: TcpStream,
    mut ticket: Ticket,
) {
    let mut upstream = Prefixed::new(stream, BytesMut::new());
    let idle = gateway.shared.limits.idle;
    let passed = tokio::select! {
        passed = handshake::pass(gateway, &mut client, &mut upstream, &ticket) => passed,
        () = ticket.revoked() => return ticket.ends(Reason::Revoked),
        () = ticket.meter.idle(idle) => return ticket.ends(Reason::Limit(IDLE)),
    };
    match passed {
        Ok(hidden) => {
            if hidden {
                ticket.decision.reason = Reason::Hidden;
            }
            relay(client, upstream.into_inner(), &ticket).await;
        }
        Err(End::Gone) => {}
        Err(End::Refused(reason)) => {
            refuse(gateway, &ticket, reason);
            answer_and_close(client, &TLS_ALERT).await;
        }
    }
}

/// Whether a name in the protocol is the requested host. If an address was requested, the name itself
/// must be allowed.
pub(super) fn is_requested_host(gateway: &Gateway, ticket: &Ticket, name: &str) -> bool {
    let Ok(named) = Host::parse(name) else {
        return false;
    };
    match (&ticket.decision.host, ticket.decision.port) {
        (Ok(asked), _) if *asked == named => true,
        (Ok(Host::Address(_)), Some(port)) => {
            let rules = gateway.shared.rules.current();
            matches!(named, Host::Name(_))
                && rules.decide(&named, port, ticket.decision.protocol).allowed
        }
        _ => false,
    }
}
