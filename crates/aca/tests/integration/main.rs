//! The backend against a stand-in for the service. What passes here matches the recorded contract; whether it
//! works on Azure only `live` can tell.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cli;
mod conformance;
mod create;
mod execute;
mod group;
mod lists;
mod live;
mod network;
mod quickstart;
mod snapshots;
mod stand_in;
