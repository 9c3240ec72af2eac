//! HTTP/1: the proxy, and plain requests inside a tunnel. Every request is decided for itself.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, Weak};

use brig_hosts::Host;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http1::{Builder, Parts};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;

use super::forward::{Upgrade, Upstream};
use super::meter::{Meter, Ticket};
use super::open::Opened;
use super::refuse::{self, Body};
use super::relay::relay;
use super::stream::{Metered, Prefixed};
use super::{Gateway, Stream, lock, tunnel};
use crate::decision::{Decision, Protocol, Reason};
use crate::rules::RuleSet;

/// One connection of a client.
struct Session {
    gateway: Gateway,
    /// The host that all requests must be for, inside a tunnel.
    only: Option<Ticket>,
    /// Kept for the next request to the same host.
    upstream: tokio::sync::Mutex<Option<Upstream>>,
    after: Mutex<Option<After>>,
    /// What is under way.
    current: Mutex<Weak<Ticket>>,
    changed: Notify,
}

/// What becomes of the connection when it stops being HTTP.
enum After {
    Tunnel(Box<Opened>),
    Upgrade(Upgrade),
}

pub(super) async fn serve_proxy<S: Stream>(gateway: &Gateway, client: Prefixed<S>) {
    serve(gateway, client, None, None).await;
}

/// Requests that must all be for the host that the tunnel leads to.
pub(super) async fn serve_one_host<S: Stream>(
    gateway: &Gateway,
    client: Prefixed<S>,
    Opened { stream, ticket }: Opened,
) {
    let upstream = Upstream::new(stream, &ticket).await.ok();
    serve(gateway, client, Some(ticket), upstream).await;
}

async fn serve<S: Stream>(
    gateway: &Gateway,
    client: Prefixed<S>,
    only: Option<Ticket>,
    upstream: Option<Upstream>,
) {
    let limits = &gateway.shared.limits;
    let session = Arc::new(Session {
        gateway: gateway.clone(),
        only,
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
    let Ok(Parts { io, read_buf, .. }) = parts else {
        return;
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
                relay(client, TokioIo::new(upstream), &ticket).await;
            }
        }
        None => refuse::part(client).await,
    }
}

impl Session {
    /// Returns once what is under way is no longer allowed, having told it why.
    async fn revoked(&self) {
        let mut rules = self.gateway.shared.rules.watch();
        loop {
            let current = lock(&self.current).upgrade();
            let current = current.as_deref().or(self.only.as_ref());
            tokio::select! {
                () = self.changed.notified() => {}
                _ = rules.changed() => self.let_go(&rules.borrow_and_update()),
                () = async { match current { Some(ticket) => ticket.revoked().await, None => pending().await } } => {
                    return current.map_or((), |ticket| ticket.ends(Reason::Revoked));
                }
            }
        }
    }

    /// Closes a connection that was kept for later and may not be used any more.
    fn let_go(&self, rules: &RuleSet) {
        if let Ok(mut kept) = self.upstream.try_lock() {
            kept.take_if(|kept| !kept.holds(rules));
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
        let bad = |reason| self.gateway.malformed(&text, Protocol::Connect, reason);
        if self.only.is_some() {
            return Err(bad(Reason::Protocol(
                "a tunnel within a tunnel is not offered".to_owned(),
            )));
        }
        let (host, port) = Host::parse_with_port(&text, None)
            .map_err(|_| bad(Reason::Malformed("it is no host with a port".to_owned())))?;
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
                    Ok(upstream) => (upstream, ticket),
                    Err(error) => {
                        let reason = Reason::Unreachable(error.to_string());
                        return Err(ticket.decision.but(reason));
                    }
                }
            }
        };
        let ticket = Arc::new(ticket);
        *lock(&self.current) = Arc::downgrade(&ticket);
        self.changed.notify_one();
        let upstream = slot.insert(upstream);
        match upstream.forward(request, ticket.clone()).await {
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

    /// Another request on a connection that is open: decided again, on the same address.
    fn again(&self, upstream: &Upstream, host: &Host, port: u16) -> Result<Ticket, Decision> {
        let rules = self.gateway.shared.rules.current();
        let decision = rules.decide(host, port, Protocol::Http);
        if !decision.allowed {
            return Err(self.gateway.denied(decision));
        }
        if matches!(host, Host::Name(_))
            && let Some(address) = upstream.address
            && let Err(reason) = rules.check_address(address, port)
        {
            return Err(self.gateway.denied(decision.but(reason)));
        }
        self.gateway
            .allowed(decision, upstream.address, upstream.meter.clone())
    }

    /// Which host the request is for. All ways to say it must say the same.
    fn target(&self, request: &Request<Incoming>) -> Result<(Host, u16), Decision> {
        let text = request.uri().to_string();
        let bad = |reason| self.gateway.malformed(&text, Protocol::Http, reason);
        let wrong = |what: &str| bad(Reason::Malformed(what.to_owned()));
        let uri = request.uri();
        let asked = match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(authority)) => Some(
                Host::parse_with_port(authority.as_str(), Some(80))
                    .map_err(|_| wrong("it is no host"))?,
            ),
            (None, None) => None,
            _ => {
                return Err(bad(Reason::Protocol(
                    "only http:// is asked for this way; use CONNECT".to_owned(),
                )));
            }
        };
        let mut headers = request.headers().get_all(HOST).iter();
        let named = match (headers.next(), headers.next()) {
            (None, _) => None,
            (Some(header), None) => Some(
                header
                    .to_str()
                    .map_err(|_| wrong("its Host can't be read"))?,
            ),
            (Some(_), Some(_)) => return Err(wrong("it has more than one Host")),
        };
        let Some(only) = &self.only else {
            let (host, port) = asked.ok_or_else(|| {
                bad(Reason::Protocol(
                    "this is a proxy: ask for a full URL".to_owned(),
                ))
            })?;
            if let Some(named) = named
                && Host::parse_with_port(named, Some(80)) != Ok((host.clone(), port))
            {
                return Err(self.mismatch(&host, port, named));
            }
            return Ok((host, port));
        };
        let (Ok(host), Some(port)) = (only.decision.host.clone(), only.decision.port) else {
            return Err(only.decision.but(Reason::NoRule));
        };
        if asked.is_some_and(|asked| asked != (host.clone(), port)) {
            return Err(self.mismatch(&host, port, &text));
        }
        match named {
            Some(named) if !self.is_meant(only, port, named) => {
                Err(self.mismatch(&host, port, named))
            }
            _ => Ok((host, port)),
        }
    }

    fn is_meant(&self, only: &Ticket, port: u16, named: &str) -> bool {
        Host::parse_with_port(named, Some(port)).is_ok_and(|(host, named_port)| {
            named_port == port && tunnel::is_meant(&self.gateway, only, &host.to_string())
        })
    }

    fn mismatch(&self, host: &Host, port: u16, named: &str) -> Decision {
        let rules = self.gateway.shared.rules.current();
        let named: String = named.escape_debug().take(100).collect();
        let reason = Reason::Mismatch(format!("its request is for `{named}`"));
        self.gateway
            .denied(rules.decide(host, port, Protocol::Http).but(reason))
    }
}
