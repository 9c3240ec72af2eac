//! The embedded backend: Linux namespaces, with no daemon, no image and no root.

#![warn(missing_docs)]

mod backend;
mod cgroup;
mod commands;
mod detached;
mod forks;
mod gate;
mod guard;
mod handoff;
mod host;
mod identity;
mod interpreters;
mod limits;
mod nesting;
mod network;
mod root;
mod sink;
mod spawn;
mod tree;
mod unaccepted;

pub use backend::{KIND, NativeBackend};
pub use brig_sandbox::Finding;
pub use commands::command_root;
pub use forks::owner_streams;
