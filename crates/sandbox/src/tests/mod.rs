//! The lifecycle on a backend that only pretends to be a sandbox, so that every turn can be forced.

mod abandoned;
mod acknowledged;
mod approvals;
mod attempts;
mod blocking;
mod checkpoints;
mod durable;
mod fake;
mod lifecycle;
mod network;
mod refusals;
mod sessions;
