//! The codes as tables for people.

use std::fmt::Write as _;

use crate::codes::{Group, ReasonCode};

/// The codes of a group, in Markdown.
pub fn table(group: Group) -> String {
    let mut out = String::from("| code | meaning | what to do |\n|---|---|---|\n");
    for code in ReasonCode::ALL.iter().filter(|code| code.group() == group) {
        let fix = code.fix().unwrap_or("–");
        let _ = writeln!(out, "| `{code}` | {} | {fix} |", code.meaning());
    }
    out
}
