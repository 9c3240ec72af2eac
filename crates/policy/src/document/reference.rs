//! The tables of fields as a JSON Schema and as a page for people.

use brig_schema::{Field, field_table, json_schema};

use super::fields::{CONDITION, DEFAULTS, DOCUMENT, MOUNTS, RULE};

/// The JSON Schema of a policy document, for editors and other checkers.
pub fn schema() -> String {
    json_schema(
        "Brig policy",
        "What an agent may do, and within which limits.",
        DOCUMENT,
    )
}

/// The fields of a policy, in Markdown.
pub fn reference() -> String {
    let mut out = String::new();
    let tables: [(&str, &[Field]); 5] = [
        ("The document", DOCUMENT),
        ("`defaults`", DEFAULTS),
        ("`rules[]`", RULE),
        ("`rules[].condition`", CONDITION),
        ("`sandbox_mounts`", MOUNTS),
    ];
    for (title, fields) in tables {
        out.push_str(&field_table(title, fields));
    }
    out
}
