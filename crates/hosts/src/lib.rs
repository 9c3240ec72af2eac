//! What a host is, and a rule about hosts. One grammar for every boundary: policies, agent files,
//! the user's configuration, flags, and what a program inside the sandbox asks for.
//!
//! - [`Rule`]: an entry of a list. `host`, `*.domain` (any depth, not the domain itself), an
//!   address, a network in CIDR form; with `:port`, `:*`, or nothing for 80 and 443. With `/tcp` after
//!   the port, any protocol may be spoken there; without, only TLS and HTTP that name the host.
//! - [`Host`]: what a program wants to reach. A name in one canonical form, or an address.
//! - [`canonical`] and [`Class`]: the address behind an address, and what kind it is.
//!
//! ```
//! use brig_hosts::{Host, Rule};
//!
//! let rule: Rule = "*.Bücher.example".parse()?;
//! assert_eq!(rule.to_string(), "*.xn--bcher-kva.example");
//! assert!(rule.allows(&Host::parse("shop.bücher.example.")?, 443));
//! assert!(!rule.allows(&Host::parse("bücher.example")?, 443));
//! // However an address is written, it is one address.
//! assert_eq!(Host::parse("0x7f.1")?, Host::parse("::ffff:127.0.0.1")?);
//! # Ok::<(), brig_hosts::HostError>(())
//! ```

mod address;
mod error;
mod host;
mod name;
mod published;
mod reach;
mod rule;

pub use address::{Class, canonical};
pub use error::HostError;
pub use host::Host;
pub use name::{Name, is_invisible};
pub use rule::{Pattern, Ports, Rule, Warning};
