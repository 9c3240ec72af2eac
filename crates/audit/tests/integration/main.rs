//! The log as a whole: written, damaged, pruned, exported.
#![allow(clippy::cast_possible_truncation, reason = "sizes in a test are small")]

mod added;
mod common;
mod crash;
mod export;
mod log;
mod proofs;
mod prune;
mod refusal;
mod tamper;
