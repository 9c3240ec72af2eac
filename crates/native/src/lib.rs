//! The embedded backend: Linux namespaces, with no daemon, no image and no root.

mod backend;
mod cgroup;
mod detached;
mod guard;
mod host;
mod identity;
mod interpreters;
mod limits;
mod root;
mod spawn;
mod tree;

pub use backend::NativeBackend;
pub use host::Finding;
