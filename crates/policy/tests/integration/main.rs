//! Policy documents: decisions, bounds, and AGT's own results.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agt;
mod bounds;
mod decisions;
mod examples;
mod fuzz;
mod reference;
