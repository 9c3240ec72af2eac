//! A connection to one host, whatever is spoken on it. Looks at how the client begins: TLS must name
//! the host that was asked for, and plain HTTP must ask for it in every request.

use std::future::pending;

use brig_hosts::Host;
use tokio::time::timeout;

use super::first::{FirstBytes, Hello, HelloReader, first_bytes};
use super::meter::Ticket;
use super::open::Opened;
use super::refuse::{TLS_ALERT, say};
use super::relay::relay;
use super::stream::Prefixed;
use super::{Gateway, Stream, http};
use crate::decision::Reason;

pub(super) async fn serve<S: Stream>(gateway: &Gateway, mut client: Prefixed<S>, opened: Opened) {
    let Opened { stream, ticket } = opened;
    let first = tokio::select! {
        first = begin(gateway, &mut client, &stream, &ticket) => first,
        () = ticket.revoked() => return ticket.ends(Reason::Revoked),
    };
    match first {
        Some(FirstBytes::Other | FirstBytes::More) => relay(client, stream, &ticket).await,
        Some(FirstBytes::Tls) => match check_name(gateway, &mut client, &ticket).await {
            Ok(()) => relay(client, stream, &ticket).await,
            Err(reason) => {
                refuse(gateway, &ticket, reason);
                say(client, &TLS_ALERT).await;
            }
        },
        Some(FirstBytes::Http) => {
            Box::pin(http::serve_one_host(
                gateway,
                client,
                Opened { stream, ticket },
            ))
            .await;
        }
        Some(FirstBytes::Http2) => {
            let what = "HTTP/2 without TLS is not offered";
            refuse(gateway, &ticket, Reason::Protocol(what.to_owned()));
        }
        None => ticket.ends(Reason::Limit("the client was too slow to begin")),
    }
}

fn refuse(gateway: &Gateway, ticket: &Ticket, reason: Reason) {
    ticket.ends(reason.clone());
    gateway.denied(ticket.decision.but(reason));
}

/// Waits until the client's protocol is known. A server that speaks first is none that TLS or HTTP
/// would be spoken to.
async fn begin<S: Stream>(
    gateway: &Gateway,
    client: &mut Prefixed<S>,
    upstream: &tokio::net::TcpStream,
    ticket: &Ticket,
) -> Option<FirstBytes> {
    let limits = &gateway.shared.limits;
    let begun = async {
        let mut byte = [0];
        loop {
            let first = match (first_bytes(client.prefix()), ticket.decision.port) {
                // What else is on this port is not for us to guess.
                (FirstBytes::Other, Some(80)) => FirstBytes::Http,
                (first, _) => first,
            };
            if first != FirstBytes::More {
                return Some(first);
            }
            let asked = !client.prefix().is_empty();
            let patience = if asked { limits.asking } else { limits.idle };
            tokio::select! {
                filled = timeout(patience, client.fill()) => match filled {
                    Ok(Ok(0)) => return Some(FirstBytes::Other),
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => return None,
                },
                _ = async { if asked { pending().await } else { upstream.peek(&mut byte).await } } => {
                    return Some(FirstBytes::Other);
                }
            }
        }
    };
    begun.await
}

/// Whether the name in the first message of TLS is the one that was asked for.
async fn check_name<S: Stream>(
    gateway: &Gateway,
    client: &mut Prefixed<S>,
    ticket: &Ticket,
) -> Result<(), Reason> {
    let limits = &gateway.shared.limits;
    let read = async {
        let mut reader = HelloReader::default();
        loop {
            match reader.read(client.prefix()) {
                Hello::More if client.prefix().len() < limits.hello => {}
                Hello::More => return Hello::Malformed,
                hello => return hello,
            }
            if client.fill().await.unwrap_or(0) == 0 {
                return Hello::Malformed;
            }
        }
    };
    match timeout(limits.asking, read).await {
        Err(_) => Err(Reason::Limit("the client was too slow to begin")),
        Ok(Hello::Nameless) => Ok(()),
        Ok(Hello::Named(name)) if is_meant(gateway, ticket, &name) => Ok(()),
        Ok(Hello::Named(name)) => Err(Reason::Mismatch(format!("its TLS name is `{name}`"))),
        Ok(Hello::More | Hello::Malformed) => Err(Reason::Malformed(
            "its first TLS message can't be read".to_owned(),
        )),
    }
}

/// Whether a name that the client gives along the way is what was asked for. For an address that
/// was asked for, a name must be allowed for itself.
pub(super) fn is_meant(gateway: &Gateway, ticket: &Ticket, name: &str) -> bool {
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
