//! Directories as byte streams.

mod folders;
mod scope;
