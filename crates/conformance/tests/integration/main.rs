//! The suite on a backend that is as unlike a Linux machine as a backend can be.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod contract;
mod leases;
mod snapshots;
