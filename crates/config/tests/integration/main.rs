//! The user's configuration and agent files.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod network;
mod store;
mod tools;
