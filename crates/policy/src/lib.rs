//! What an agent may do. This crate is pure: it decides over what it is given and touches
//! nothing else.

mod cases;
mod command;
mod context;
mod decision;
mod diff;
mod document;
mod engine;
mod eval;
mod explain;
mod folder;
pub mod form;
mod kept;
mod pattern;
mod problem;
mod scan;
mod set;
mod tree;
mod unicode;
pub mod value;

pub use cases::{CaseResult, Cases, load_facts};
pub use command::{CommandEntry, CommandList, CommandMode, CommandRule, Commands, command_sets};
pub use context::{Extra, OwnFact, Request};
pub use decision::{Action, AllowAll, Decider, Decision};
pub use diff::{Change, Direction, diff};
pub use document::{
    CONTROLS, Condition, Defaults, Digest, Document, FACTS, Given, HostRule, Limits, Loaded,
    Mounts, Operator, Rule, Verdict, reference, schema,
};
pub use engine::Answer;
pub use eval::eval_line;
pub use explain::{Considered, Effective, Explanation, Flip, Origin, Outcome};
pub use folder::GOVERNANCE_FILES;
pub use problem::{Position, Problem, Problems, Severity};
pub use scan::{Finding, Scan, scan_python};
pub use set::PolicySet;
pub use tree::{Compat, Format, MAX_BYTES};
pub use value::{Map, Value};
