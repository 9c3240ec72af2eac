//! What people write down for every run: the user's configuration, agent files, and what they
//! decide together.
//!
//! - [`UserConfig`]: allowed and blocked hosts, aliases, whether agents are sandboxed. [`Store`]
//!   keeps it in a file and changes it without touching what else is in there.
//! - [`AgentFile`]: how an agent is run.
//! - [`choose`]: sandboxed or not.
//! - [`resolve`]: reads all that a run of an agent needs, each file once.
//! - [`layers`] and [`summary`]: the rules of all of them, and how they are told.
//!
//! Hosts are [`brig_hosts::Rule`]s from the moment they are read; no text reaches the gateway.

mod agent;
mod choice;
mod edit;
mod error;
mod lists;
mod network;
mod resolve;
mod source;
mod store;
mod user;

pub use agent::{AgentFile, PolicySource};
pub use choice::{By, Choice, choose};
pub use error::{Error, Result};
pub use lists::{Change, Changed, List};
pub use network::{layers, summary, user_layer};
pub use resolve::{Run, resolve};
pub use source::{Disk, Source};
pub use store::Store;
pub use user::{Alias, UserConfig, check_alias};

/// The JSON Schema of an agent file, for editors and other checkers.
pub fn agent_schema() -> String {
    agent::schema()
}

/// The fields of agent files and of the user's configuration, in Markdown.
pub fn reference() -> String {
    [agent::reference(), user::reference()].concat()
}
