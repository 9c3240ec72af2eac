//! Host functions that sandboxed code may call.
//!
//! A [`Tool`] has a name, a description, a JSON Schema of its arguments, and a function that runs on the
//! host. A [`ToolRegistry`] holds the tools of one sandbox. Who may call what is decided elsewhere, by the
//! lifecycle: nothing in this crate is reachable from a sandbox without that decision.

#![warn(missing_docs)]

mod error;
mod function;
mod name;
mod registry;
mod tool;

pub use error::ToolError;
pub use function::FunctionTool;
pub use name::{InvalidToolName, ToolName};
pub use registry::{DuplicateTool, ToolRegistry};
pub use tool::{Arguments, Tool, ToolSpec};
