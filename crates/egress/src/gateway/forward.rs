//! Forwards a request and its answer, without hop-by-hop headers.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use brig_hosts::Host;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::meter::{Meter, Ticket, still_allowed};
use super::refuse::{Body, REASON_HEADER};
use super::stream::Metered;
use crate::decision::Decision;
use crate::rules::RuleSet;

/// How long to wait for a connection that still finishes its last request.
const READY_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to a server.
pub(super) struct Upstream {
    decision: Decision,
    pub address: Option<IpAddr>,
    pub meter: Arc<Meter>,
    sender: SendRequest<Incoming>,
    driver: JoinHandle<()>,
}

/// The longest header of an answer, in bytes.
const ANSWER: usize = 256 * 1024;

/// Both sides have agreed to switch to another protocol.
pub(super) struct Upgrade {
    pub upstream: OnUpgrade,
    pub ticket: Arc<Ticket>,
}

impl Upstream {
    pub(super) async fn new(stream: TcpStream, ticket: &Ticket) -> hyper::Result<Self> {
        let io = TokioIo::new(Metered {
            inner: stream,
            meter: ticket.meter.clone(),
        });
        let (sender, connection) = Builder::new()
            .max_headers(256)
            .max_buf_size(ANSWER.min(ticket.gateway.share()))
            .handshake(io)
            .await?;
        let driver = tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Self {
            decision: ticket.decision.clone(),
            address: ticket.address,
            meter: ticket.meter.clone(),
            sender,
            driver,
        })
    }

    pub(super) fn is_to(&self, host: &Host, port: u16) -> bool {
        self.decision.host.as_ref() == Ok(host) && self.decision.port == Some(port)
    }

    /// Whether the rules still allow it.
    pub(super) fn still_allowed(&self, rules: &RuleSet) -> bool {
        still_allowed(&self.decision, self.address, rules)
    }

    /// Whether another request can be sent.
    pub(super) async fn is_ready(&mut self) -> bool {
        // If it is still busy with the last request, a new connection is made instead.
        matches!(
            timeout(READY_TIMEOUT, self.sender.ready()).await,
            Ok(Ok(()))
        )
    }

    pub(super) async fn forward(
        &mut self,
        mut request: Request<Incoming>,
        ticket: Arc<Ticket>,
    ) -> hyper::Result<(Response<Body>, Option<Upgrade>)> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        // `http://host?query` has no path.
        let path = match path.starts_with('?') {
            true => format!("/{path}"),
            false => path.to_owned(),
        };
        *request.uri_mut() = path.parse().unwrap_or(Uri::from_static("/"));
        *request.version_mut() = Version::HTTP_11;
        let wanted = is_websocket(request.headers())
            && request.headers().contains_key(header::SEC_WEBSOCKET_KEY);
        clean(request.headers_mut(), wanted);
        request.headers_mut().remove(header::EXPECT);
        if let (Ok(host), Some(port)) = (&self.decision.host, self.decision.port) {
            let value = match (host, port) {
                (Host::Address(IpAddr::V6(_)), 80) => format!("[{host}]"),
                (host, 80) => host.to_string(),
                (host, port) => host.with_port(port),
            };
            if let Ok(value) = HeaderValue::try_from(value) {
                request.headers_mut().insert(header::HOST, value);
            }
        }
        let mut response = self.sender.send_request(request).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        // What follows is not inspected, so it must be the protocol that the client asked for.
        let accepted = is_websocket(response.headers())
            && (response.headers()).contains_key(header::SEC_WEBSOCKET_ACCEPT);
        let upgrade = (wanted && switched && accepted).then(|| Upgrade {
            upstream: hyper::upgrade::on(&mut response),
            ticket: ticket.clone(),
        });
        clean(response.headers_mut(), upgrade.is_some());
        response.headers_mut().remove(REASON_HEADER);
        *response.version_mut() = Version::HTTP_11;
        let response = response.map(|body| {
            Guarded {
                body,
                _ticket: ticket,
            }
            .boxed_unsync()
        });
        Ok((response, upgrade))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // An upgraded connection no longer belongs to the driver.
        self.driver.abort();
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::UPGRADE).iter();
    matches!((values.next(), values.next()), (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Removes hop-by-hop headers (RFC 9110, 7.6.1).
fn clean(headers: &mut HeaderMap, websocket: bool) {
    let listed: Vec<HeaderName> = (headers.get_all(header::CONNECTION).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
    if websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// A body that keeps its ticket, so that the record is closed when the body has been sent.
struct Guarded {
    body: Incoming,
    _ticket: Arc<Ticket>,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
