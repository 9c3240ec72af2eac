//! Files that people write, in YAML or JSON: a tree in which every value has its position, tables
//! of the fields that a file may contain, and problems with a position, a reason and a fix.
//!
//! Policies and the user's configuration are read with it. The JSON Schemas and the reference pages
//! are generated from the same tables.

mod coerce;
mod fault;
mod fields;
mod json_schema;
mod problem;
mod reader;
mod reference;
mod tree;

pub use brig_python_semantics::Value;
pub use fields::{Field, FieldKind};
pub use json_schema::json_schema;
pub use problem::{
    Fault, KeyPath, Position, Problem, ProblemLog, Problems, Severity, nearest, quoted,
};
pub use reader::{Given, Object, Reader};
pub use reference::field_table;
pub use tree::{
    Compat, Format, MAX_BYTES, Node, NodeKind, Pair, parse, parse_line, parse_unlimited,
};
