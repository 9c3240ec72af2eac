//! What an agent may do. This crate is pure: it decides over what it is given and touches
//! nothing else.

mod decision;

pub use decision::{Action, AllowAll, Decider, Decision, Request};
