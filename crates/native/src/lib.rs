//! The embedded backend: Linux namespaces, with no daemon, no image and no root.

mod backend;
mod cgroup;
mod commands;
mod detached;
mod gate;
mod guard;
mod handoff;
mod host;
mod identity;
mod interpreters;
mod limits;
mod network;
mod root;
mod spawn;
mod tree;

pub use backend::NativeBackend;
pub use brig_sandbox::Finding;
pub use commands::command_root;

/// What the README and the guide show is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guides/library.md")]
#[derive(Debug)]
pub struct Guides;
