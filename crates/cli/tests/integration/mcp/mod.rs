//! `brig mcp`, driven by lines of JSON as a client writes them.

pub(crate) mod client;
mod ends;
mod files;
mod hostile;
mod protocol;
mod runs;
mod schemas;
