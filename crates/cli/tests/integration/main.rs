//! The `brig` command as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod approvals;
mod audit;
mod callers;
mod commands;
mod common;
mod complete;
mod copies;
mod defaults;
mod denials;
#[cfg(feature = "docker")]
mod docker;
mod documents;
mod evidence;
mod exit_codes;
#[cfg(target_arch = "x86_64")]
mod faults;
mod first_run;
mod governed;
mod hosts;
mod hosts_held;
mod json;
#[cfg(feature = "mcp")]
mod mcp;
mod network;
mod outside;
mod policy;
mod prune;
mod reference;
mod run;
mod scripts;
mod session;
mod signals;
mod state;
mod terminal;
mod tools;
mod untrusted;
mod variables;
