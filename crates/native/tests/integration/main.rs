//! The native backend, with real sandboxes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod beyond;
mod commands;
mod conformance;
mod copied;
mod crash;
mod crowd;
mod descriptors;
mod disks;
mod flood;
mod interpreters;
mod leftovers;
mod listed;
mod memory;
mod network;
mod owners;
mod programs;
mod saved;
mod sockets;
mod streams;
mod tools;
mod usage;
mod ways_out;
