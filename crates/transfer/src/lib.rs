//! A folder as a stream of bytes: files, folders, symbolic links, names of one file, modes, times
//! and holes. For a sandbox whose files can't be reached from outside.
//!
//! The [`Sender`] is asked for bytes, the [`Receiver`] is given them, and neither ever waits. What
//! the sender sent before is not sent again. The receiver trusts nothing it is given: no path leads
//! out of its folder, no link is followed, and there are [`Bounds`] for everything.
//!
//! A root file system that belongs to others can be sent and received too: within a [`Scope`].

mod open;
mod place;
mod receive;
mod record;
mod scope;
mod send;
mod writing;

pub use receive::{Bounds, Receiver};
pub use scope::Scope;
pub use send::{Sender, Stamps};

/// How deep folders may be nested.
pub const MAX_DEPTH: usize = 128;
