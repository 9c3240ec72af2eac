//! HTTP/1: the proxy, and plain requests in a tunnel. Every request on a connection is decided by
//! itself, because a client may send requests for several hosts over one connection.
//!
//! `hyper` reads requests strictly and rewrites them, so that the gateway and the server can't disagree
//! about where a request ends (request smuggling). Existing proxy crates decide per connection, or
//! forward what they don't understand.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use brig_hosts::Host;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http1::{Builder, Parts};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;

use super::forward::{Upgrade, Upstream};
use super::meter::{Meter, Ticket};
use super::open::Opened;
use super::refuse::{self, Body};
use super::relay::relay_metered;
use super::stream::{Metered, Prefixed};
use super::{Gateway, Stream, lock, redact, tunnel};
use crate::decision::{Decision, Protocol, Reason};
use crate::rules::RuleSet;

/// One client connection.
struct Session {
    gateway: Gateway,
    /// In a tunnel: the only host that requests may be for.
    only: Option<Arc<Ticket>>,
    /// Whether the first request of a tunnel is still to come. It is recorded with the tunnel.
    first: AtomicBool,
    /// Kept for the next request to the same host.
    upstream: tokio::sync::Mutex<Option<Upstream>>,
    after: Mutex<Option<After>>,
    /// The request that is being served.
    current: Mutex<Weak<Ticket>>,
    changed: Notify,
}

/// What the connection becomes when it stops being HTTP.
enum After {
    Tunnel(Box<Opened>),
    Upgrade(Upgrade),
}

pub(super) async fn serve_proxy<S: Stream>(gateway: &Gateway, client: Prefixed<S>) {
    serve(gateway, client, None, None).await;
}

/// Requests in a tunnel, which must all be for the tunnel's host.
pub(super) async fn serve_one_host<S: Stream>(
    gateway: &Gateway,
    client: Prefixed<S>,
    Opened { stream, ticket }: Opened,
) {
    let upstream = Upstream::new(stream, &ticket).await.ok();
    serve(gateway, client, Some(Arc::new(ticket)), upstream).await;
}

async fn serve<S: Stream>(
    gateway: &Gateway,
    client: Prefixed<S>,
    only: Option<Arc<Ticket>>,
    upstream: Option<Upstream>,
) {
    let limits = &gateway.shared.limits;
    let session = Arc::new(Session {
        gateway: gateway.clone(),
        only,
        first: AtomicBool::new(true),
        upstream: tokio::sync::Mutex::new(upstream),
        after: Mutex::new(None),
        current: Mutex::new(Weak::new()),
        changed: Notify::new(),
    });
    let meter = Meter::new();
    let io = TokioIo::new(Metered {
        inner: client,
        meter: meter.clone(),
    });
    let service = service_fn(|request| {
        let session = session.clone();
        async move { Ok::<_, Infallible>(session.handle(request).await) }
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(limits.asking)
        .max_buf_size(limits.head.max(8192).min(gateway.share()))
        .max_headers(128)
        .serve_connection(io, service)
        .without_shutdown();
    let parts = tokio::select! {
        ended = connection => ended,
        () = session.revoked() => return,
        () = meter.idle(limits.idle) => return,
    };
    let Parts { io, read_buf, .. } = match parts {
        Ok(parts) => parts,
        Err(error) => return session.unreadable(&error),
    };
    let client = io.into_inner().inner.unread(&read_buf);
    let after = lock(&session.after).take();
    match after {
        Some(After::Tunnel(opened)) => {
            drop(session);
            Box::pin(tunnel::serve(gateway, client, *opened)).await;
        }
        Some(After::Upgrade(Upgrade { upstream, ticket })) => {
            if let Ok(upstream) = upstream.await {
                relay_metered(client, TokioIo::new(upstream), &ticket).await;
            }
        }
        None => refuse::close_gracefully(client).await,
    }
}

impl Session {
    /// Returns when the rules have changed and no longer allow the current request.
    async fn revoked(&self) {
        let mut rules = self.gateway.shared.rules.watch();
        loop {
            // A ticket is recorded as closed when it is dropped, so it must not be kept here.
            let revoked = self.current_ticket().map(|ticket| ticket.revoked());
            tokio::select! {
                () = self.changed.notified() => {}
                _ = rules.changed() => self.drop_revoked_upstream(&rules.borrow_and_update()),
                () = async { match revoked { Some(revoked) => revoked.await, None => pending().await } } => {
                    return self.current_ticket().map_or((), |ticket| ticket.ends(Reason::Revoked));
                }
            }
        }
    }

    fn current_ticket(&self) -> Option<Arc<Ticket>> {
        lock(&self.current).upgrade().or_else(|| self.only.clone())
    }

    /// Closes an idle upstream connection that is no longer allowed.
    fn drop_revoked_upstream(&self, rules: &RuleSet) {
        if let Ok(mut kept) = self.upstream.try_lock() {
            kept.take_if(|kept| !kept.still_allowed(rules));
        }
    }

    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let handled = match request.method() {
            &Method::CONNECT => self.connect(&request).await,
            _ => self.request(request).await,
        };
        handled.unwrap_or_else(|decision| refuse::answer(&decision))
    }

    async fn connect(&self, request: &Request<Incoming>) -> Result<Response<Body>, Decision> {
        let text = request.uri().to_string();
        let shown = redact::uri(request.uri());
        let bad = |reason| {
            self.gateway
                .record_malformed(&shown, Protocol::Connect, reason)
        };
        if self.only.is_some() {
            return Err(bad(Reason::Protocol(
                "a tunnel in a tunnel is not supported".to_owned(),
            )));
        }
        let (host, port) = Host::parse_with_port(&text, None).map_err(|_| {
            bad(Reason::Malformed(
                "it is not a valid host with a port".to_owned(),
            ))
        })?;
        let opened = self.gateway.open(&host, port, Protocol::Connect).await?;
        *lock(&self.after) = Some(After::Tunnel(Box::new(opened)));
        let nothing = Empty::new().map_err(|never: Infallible| match never {});
        Ok(Response::new(nothing.boxed_unsync()))
    }

    async fn request(&self, request: Request<Incoming>) -> Result<Response<Body>, Decision> {
        let (host, port) = self.target(&request)?;
        let mut slot = self.upstream.lock().await;
        let kept = match slot.take().filter(|kept| kept.is_to(&host, port)) {
            Some(mut kept) => kept.is_ready().await.then_some(kept),
            None => None,
        };
        let (upstream, ticket) = match kept {
            Some(kept) => {
                let ticket = self.again(&kept, &host, port)?;
                (kept, ticket)
            }
            None => {
                let Opened { stream, ticket } =
                    self.gateway.open(&host, port, Protocol::Http).await?;
                match Upstream::new(stream, &ticket).await {
                    Ok(upstream) => (upstream, Arc::new(ticket)),
                    Err(error) => {
                        let reason = Reason::Unreachable(error.to_string());
                        return Err(ticket.decision.but(reason));
                    }
                }
            }
        };
        *lock(&self.current) = Arc::downgrade(&ticket);
        self.changed.notify_one();
        let upstream = slot.insert(upstream);
        match upstream.forward(request, ticket.clone()).await {
            Ok((response, None)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                *slot = None;
                let what = "the server switches to a protocol that is not supported";
                let reason = Reason::Protocol(what.to_owned());
                ticket.ends(reason.clone());
                Err(self.gateway.record_denied(ticket.decision.but(reason)))
            }
            Ok((response, upgrade)) => {
                *lock(&self.after) = upgrade.map(After::Upgrade);
                Ok(response)
            }
            Err(error) => {
                *slot = None;
                let reason = Reason::Unreachable(error.to_string());
                ticket.ends(reason.clone());
                Err(ticket.decision.but(reason))
            }
        }
    }

    /// Another request on an open connection. Decided again, and for the address that is connected: the
    /// rules may have changed since.
    fn again(&self, upstream: &Upstream, host: &Host, port: u16) -> Result<Arc<Ticket>, Decision> {
        let rules = self.gateway.shared.rules.current();
        let decision = rules.decide(host, port, Protocol::Http);
        if !decision.allowed {
            return Err(self.gateway.record_denied(decision));
        }
        if matches!(host, Host::Name(_))
            && let Some(address) = upstream.address
            && let Err(reason) = rules.check_address(address, port)
        {
            return Err(self.gateway.record_denied(decision.but(reason)));
        }
        if let Some(only) = &self.only
            && Arc::ptr_eq(&only.meter, &upstream.meter)
            && self.first.swap(false, Relaxed)
        {
            return Ok(only.clone());
        }
        let meter = upstream.meter.clone();
        let ticket = self
            .gateway
            .record_opened(decision, upstream.address, meter)?;
        Ok(Arc::new(ticket))
    }

    /// The host that a request is for. URL, Host header and tunnel must agree: otherwise a server that
    /// hosts several names could serve another one than was decided on.
    fn target(&self, request: &Request<Incoming>) -> Result<(Host, u16), Decision> {
        let text = redact::uri(request.uri());
        let bad = |reason| self.gateway.record_malformed(&text, Protocol::Http, reason);
        let wrong = |what: &str| bad(Reason::Malformed(what.to_owned()));
        let uri = request.uri();
        let in_url = match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(authority)) => Some(
                Host::parse_with_port(authority.as_str(), Some(80))
                    .map_err(|_| wrong("it is not a valid host"))?,
            ),
            (None, None) => None,
            _ => {
                return Err(bad(Reason::Protocol(
                    "only http:// URLs are supported this way; use CONNECT".to_owned(),
                )));
            }
        };
        let mut headers = request.headers().get_all(HOST).iter();
        let in_header = match (headers.next(), headers.next()) {
            (None, _) => None,
            (Some(header), None) => Some(
                header
                    .to_str()
                    .map_err(|_| wrong("its Host header is invalid"))?,
            ),
            (Some(_), Some(_)) => return Err(wrong("it has more than one Host header")),
        };
        let Some(only) = &self.only else {
            let (host, port) = in_url.ok_or_else(|| {
                bad(Reason::Protocol(
                    "this is a proxy: use an absolute URL".to_owned(),
                ))
            })?;
            if let Some(named) = in_header
                && Host::parse_with_port(named, Some(80)) != Ok((host.clone(), port))
            {
                return Err(self.mismatch(&host, port, named));
            }
            return Ok((host, port));
        };
        let (Ok(host), Some(port)) = (only.decision.host.clone(), only.decision.port) else {
            return Err(only.decision.but(Reason::NoRule));
        };
        if in_url.is_some_and(|in_url| in_url != (host.clone(), port)) {
            return Err(self.mismatch(&host, port, &text));
        }
        match in_header {
            Some(named) if !self.is_requested_host(only, port, named) => {
                Err(self.mismatch(&host, port, named))
            }
            _ => Ok((host, port)),
        }
    }

    /// Records a request that could not be read. A client that has gone away is not recorded.
    fn unreadable(&self, error: &hyper::Error) {
        let reason = if error.is_timeout() {
            Reason::Limit("its request header was too slow")
        } else if error.is_parse_too_large() {
            Reason::Limit("its request header is too long")
        } else if error.is_parse_version_h2() {
            Reason::Protocol("HTTP/2 without TLS is not supported".to_owned())
        } else if error.is_parse() {
            Reason::Malformed(format!("its request is invalid: {error}"))
        } else {
            return;
        };
        match &self.only {
            Some(only) => {
                let decision = only.decision.but(reason);
                self.gateway.record_denied_at(decision, only.address);
            }
            None => drop(
                self.gateway
                    .record_malformed("(HTTP request)", Protocol::Http, reason),
            ),
        }
    }

    fn is_requested_host(&self, only: &Ticket, port: u16, named: &str) -> bool {
        Host::parse_with_port(named, Some(port)).is_ok_and(|(host, named_port)| {
            named_port == port && tunnel::is_requested_host(&self.gateway, only, &host.to_string())
        })
    }

    fn mismatch(&self, host: &Host, port: u16, named: &str) -> Decision {
        let rules = self.gateway.shared.rules.current();
        let named = redact::host(named);
        let reason = Reason::Mismatch(format!("its request is for `{named}`"));
        let address = self.only.as_ref().and_then(|only| only.address);
        let decision = rules.decide(host, port, Protocol::Http).but(reason);
        self.gateway.record_denied_at(decision, address)
    }
}
