//! A directory as a byte stream: files, directories, symbolic and hard links, modes, times and holes. For
//! a sandbox whose files the host can't access.
//!
//! Bytes are pulled from the [`Sender`] and pushed into the [`Receiver`]; neither ever blocks. What was
//! sent before is not sent again. The receiver does not trust the stream: no path leads out of its
//! directory, no link is followed, and there are [`Bounds`] for everything.
//!
//! A root file system that mostly belongs to other users can be transferred too, within a [`Scope`].
//!
//! Not tar: it has no record for "unchanged since the last time", and its readers accept far more than
//! this needs.

mod cache;
mod entry;
mod evidence;
mod file_reader;
mod file_writer;
mod owned;
mod receive;
mod record;
mod scope;
mod send;
mod stamps;

pub use cache::{Cached, CachedFile, FileIdentity, content_digest};
pub use evidence::{Compare, Evidence};
pub use receive::{Bounds, Received, Receiver};
pub use scope::Scope;
pub use send::Sender;
pub use stamps::Stamps;

/// How deep directories may be nested.
pub const MAX_DEPTH: usize = 128;
