//! What people write down for every run: the user's configuration, agent files, and what they
//! decide together.
//!
//! - [`UserConfig`]: defaults, allowed and blocked hosts, aliases, whether agents are sandboxed. [`Store`]
//!   keeps it in a file and changes it without touching what else is in there.
//! - [`AgentFile`]: how an agent is run.
//! - [`choose`]: sandboxed or not. [`Identity`]: what the user must have agreed to before a file may say so.
//! - [`resolve`]: reads all that a run of an agent needs, each file once.
//! - [`layers`] and [`summary`]: the rules of all of them, and how they are summarised.
//!
//! Hosts are [`brig_hosts::Rule`]s from the moment they are read; no text reaches the gateway.

mod agent;
mod choice;
mod consent;
mod defaults;
mod edit;
mod error;
mod lists;
mod mount;
mod network;
pub mod quantity;
mod resolve;
mod source;
mod store;
mod tools;
mod trust;
mod user;

pub use agent::{AgentFile, PolicySource};
pub use choice::{By, Choice, SandboxSettings, choose};
pub use consent::{BackendSetBy, Decided};
pub use defaults::{Defaults, SetLimits};
pub use error::{Error, Result};
pub use lists::{Change, Changed, List};
pub use mount::Mount;
pub use network::{all_rules, layers, summary, user_layer};
pub use resolve::{Run, resolve};
pub use source::{Disk, Source};
pub use store::Store;
pub use tools::{ConfiguredEndpoint, ConfiguredServer, ConfiguredTool, ToolSources};
pub use trust::Identity;
pub use user::{Alias, ConfiguredBackend, UserConfig, check_alias};

/// The JSON Schema of an agent file, for editors and other checkers.
pub fn agent_schema() -> String {
    agent::schema()
}

/// The fields of agent files and of the user's configuration, in Markdown.
pub fn reference() -> String {
    [agent::reference(), user::reference()].concat()
}
