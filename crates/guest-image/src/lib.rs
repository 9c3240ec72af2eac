//! The guest program, built static and embedded, so that a user of the library needs no second
//! file.

/// A static Linux executable.
pub static GUEST: &[u8] = include_bytes!(env!("BRIG_GUEST"));

/// A static Linux executable that stands in for programs that may not be run.
pub static SHIM: &[u8] = include_bytes!(env!("BRIG_SHIM"));

/// A static Linux executable that calls tools: `brig-tool`.
pub static TOOL: &[u8] = include_bytes!(env!("BRIG_TOOL"));
