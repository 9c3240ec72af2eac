//! Forwards a TLS handshake while it is unencrypted, and checks the name in every ClientHello.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::meter::Ticket;
use super::stream::Prefixed;
use super::tls::{ClientBytes, ClientHello, ClientSide, ServerBytes, server_bytes};
use super::{Gateway, Stream, redact, tunnel};
use crate::decision::Reason;

/// Early data that is forwarded before the server has answered.
const EARLY: usize = 64 * 1024;
/// Unencrypted bytes of the server. A ClientHello has a limit of its own.
const CLEAR: usize = 64 * 1024;

const SLOW: Reason = Reason::Limit("the client was too slow to start");
const STUCK: Reason = Reason::Limit("the server was too slow to answer");

pub(super) enum End {
    /// One side has closed the connection.
    Gone,
    Refused(Reason),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Returns when the server has accepted a ClientHello, and whether an encrypted part of it may contain
/// another name.
pub(super) async fn pass<S: Stream>(
    gateway: &Gateway,
    client: &mut Prefixed<S>,
    upstream: &mut Prefixed<TcpStream>,
    ticket: &Ticket,
) -> Result<bool, End> {
    let limits = &gateway.shared.limits;
    let (mut side, mut first) = (ClientSide::default(), None);
    let (mut early, mut clear) = (0, 0);
    let mut until = Instant::now() + limits.asking;
    loop {
        let waits_for_client = loop {
            let length = match side.next(client.prefix()) {
                ClientBytes::More if client.prefix().len() >= limits.hello => {
                    return Err(unreadable("its TLS ClientHello is too long"));
                }
                // Between two ClientHellos, another record may have begun.
                ClientBytes::More => break first.is_none() || !client.prefix().is_empty(),
                ClientBytes::Malformed(what) => return Err(unreadable(what)),
                ClientBytes::Pass(length) => {
                    early += length;
                    length
                }
                ClientBytes::Hello(hello, length) => {
                    check(gateway, ticket, first.as_ref(), &hello)?;
                    first.get_or_insert(hello);
                    length
                }
            };
            until = Instant::now() + limits.idle;
            upstream.write_all(&client.prefix()[..length]).await?;
            client.advance(length);
            ticket.meter.sent(length);
        };
        let done = match server_bytes(upstream.prefix()) {
            ServerBytes::More if upstream.prefix().len() + clear > CLEAR => {
                return Err(End::Refused(Reason::Raw(tunnel::NOT_TLS)));
            }
            ServerBytes::More => None,
            ServerBytes::Other => return Err(End::Refused(Reason::Raw(tunnel::NOT_TLS))),
            ServerBytes::Pass(length) => Some((length, false)),
            ServerBytes::Done => Some((upstream.prefix().len(), true)),
        };
        if let Some((length, done)) = done {
            client.write_all(&upstream.prefix()[..length]).await?;
            client.flush().await?;
            upstream.advance(length);
            ticket.meter.received(length);
            clear += length;
            if done {
                return Ok(first.is_some_and(|hello| hello.encrypted));
            }
            continue;
        }
        tokio::select! {
            filled = client.fill(), if early < EARLY => match filled? {
                // Nobody would read the server's answer, or the ClientHello is incomplete.
                0 => return Err(match first {
                    Some(_) => End::Gone,
                    None => unreadable("its TLS ClientHello is incomplete"),
                }),
                _ if waits_for_client => {}
                _ => until = Instant::now() + limits.asking,
            },
            filled = upstream.fill() => if filled? == 0 {
                return Err(End::Gone);
            },
            () = sleep_until(until) => {
                return Err(End::Refused(if waits_for_client { SLOW } else { STUCK }));
            }
        }
    }
}

fn unreadable(what: &str) -> End {
    End::Refused(Reason::Malformed(what.to_owned()))
}

/// Checks that the name in a ClientHello is the requested host, and the name of an earlier one.
fn check(
    gateway: &Gateway,
    ticket: &Ticket,
    first: Option<&ClientHello>,
    hello: &ClientHello,
) -> Result<(), End> {
    let mismatch = |what: String| Err(End::Refused(Reason::Mismatch(what)));
    if let Some(name) = &hello.name
        && !tunnel::is_requested_host(gateway, ticket, name)
    {
        let name = redact::host(name);
        return mismatch(format!("its TLS server name (SNI) is `{name}`"));
    }
    match first {
        Some(first) if first.name != hello.name => {
            return mismatch("its second TLS ClientHello has another name".to_owned());
        }
        Some(first) if first.encrypted => return Ok(()),
        _ => {}
    }
    if hello.encrypted {
        let mut decision = ticket.decision.clone();
        decision.reason = Reason::Hidden;
        let noted = gateway.record_allowed(decision, ticket.address);
        noted.map_err(|decision| End::Refused(decision.reason))?;
    }
    Ok(())
}
