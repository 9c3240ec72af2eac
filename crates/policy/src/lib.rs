//! The policy document and the decisions it gives: read, decide, explain, compare. This crate is
//! pure: it reads no files and has no side effects.

#![warn(missing_docs)]

mod cases;
mod command;
mod context;
mod decision;
mod diff;
mod directory;
mod document;
mod engine;
mod eval;
mod explain;
mod set;
mod stored;

pub use brig_python_semantics::{Map, Value};
pub use brig_schema::{Compat, Given, MAX_BYTES, Position, Problem, Problems, Severity};
pub use cases::{CaseResult, Cases, load_facts};
pub use command::{CommandEntry, CommandList, CommandMode, CommandRule, Commands, command_sets};
pub use context::{Extra, OwnFact, Request, command_line};
pub use decision::{Action, AllowAll, Decider, Decision};
pub use diff::{Change, Direction, diff};
pub use directory::GOVERNANCE_FILES;
pub use document::{
    CONTROLS, Condition, Defaults, Digest, Document, FACTS, HOSTS, HostRule, Limits, Loaded,
    Mounts, Operator, Priority, Rule, Verdict, reference, schema,
};
pub use engine::Answer;
pub use eval::eval_line;
pub use explain::{Considered, Effective, Explanation, Flip, Origin, Outcome};
pub use set::PolicySet;
