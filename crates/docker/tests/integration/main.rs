//! The container backend, on the engine that `scripts/test` started.

mod agt;
mod apparmor;
mod beyond;
mod commands;
mod common;
mod conformance;
mod cpu;
mod elsewhere;
mod failures;
mod file_cache;
mod ids;
mod images;
mod lookup;
mod musl;
mod network;
mod own_engine;
mod owners;
mod podman;
mod pool;
mod registry;
mod rootless;
mod sealed;
mod ssh;
mod unchanged;
mod writable;
