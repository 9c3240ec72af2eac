//! Tools from commands and MCP servers, with real processes.

mod commands;
mod common;
mod foreign;
mod hostile;
mod http;
mod servers;
