//! The network of a sandbox. No route leads out of it; this is the only way.
//!
//! ```text
//!   program ──► listener in the sandbox's network namespace, or the guest's relay
//!                  │  HTTP proxy, SOCKS5, DNS, or plain TCP to an address that DNS handed out
//!                  ▼
//!   decide   the name, as asked for, against the rules of all layers     (nothing was looked up)
//!   resolve  the name, with the resolver of the host
//!   check    every address: private and the like need a rule that names them
//!   record   the decision; what can't be recorded is refused
//!   dial     an address that was checked
//!   inspect  the name in every TLS hello, and the host of every plain HTTP request; what is neither
//!            needs a rule that says `/tcp`
//! ```
//!
//! - [`RuleSet`] contains [`Layer`]s and makes a [`Decision`]. Pure.
//! - [`Rules`] is a rule set that may change while connections are open.
//! - [`Gateway`] serves connections: [`Gateway::accept`] on listeners, [`Gateway::connection`] on a
//!   stream that was accepted elsewhere. [`DnsSocket`] and [`Gateway::answer_dns`] serve DNS.
//! - [`Resolve`], [`Dial`] and [`Record`] are what the gateway needs from outside.
//!
//! Dropping an [`Acceptor`] closes its connections: without the gateway, a sandbox has no network.

#![warn(missing_docs)]

mod decision;
mod gateway;
mod limits;
mod net;
mod record;
mod rules;

pub use brig_hosts::{Class, Host, HostError, Name, Pattern, Ports, Rule, Warning};
pub use decision::{Decision, Protocol, Reason};
pub use gateway::{
    Acceptor, Builder, DROPPED, DnsSocket, Gateway, ListenerKind, NO_IPV6, NO_UDP, Pool,
};
pub use limits::Limits;
pub use net::{Dial, Resolve, System, listed_addresses};
pub use record::{Closed, Decided, Record};
pub use rules::{Layer, LayerKind, RuleSet, Rules};

/// Parsers of bytes from inside the sandbox, for fuzzing. No part of the API.
#[doc(hidden)]
pub mod parse {
    pub use crate::gateway::{ClientHello, FirstBytes, first_bytes, socks_request, tls_hello};
}
