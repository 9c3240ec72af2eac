//! The gateway, with real clients and servers on loopback.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths in a test are short"
)]

mod addresses;
mod clients;
mod common;
mod crowd;
mod decisions;
mod dns;
mod limits;
mod mutated;
mod proxy;
mod refusals;
mod requests;
mod search;
mod speaking;
mod transparent;
mod tunnels;
