//! Values, comparisons and patterns as Python evaluates them, because existing policies were
//! written for an evaluator in Python.

mod pattern;
mod unicode;
mod value;

pub use pattern::{Pattern, PatternError, PatternSet, StepLimit};
pub use value::{BigInt, MAX_DIGITS, Map, Mismatch, Order, Value};
