//! A table of fields as a page for people.

use std::fmt::Write as _;

use crate::fields::{Field, FieldKind};

/// These fields, in Markdown.
pub fn field_table(title: &str, fields: &[Field]) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "### {title}\n\n| field | type | if missing | meaning |\n|---|---|---|---|\n"
    );
    for field in fields {
        let missing = match (field.required, field.default) {
            (true, _) => "an error".to_owned(),
            (false, Some(default)) => format!("`{default}`"),
            (false, None) => "–".to_owned(),
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {missing} | {} |",
            field.name,
            type_name(field.kind),
            field.about
        );
    }
    out.push('\n');
    out
}

fn type_name(kind: FieldKind) -> String {
    let choice = |choices: &[&str]| {
        let quoted: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        quoted.join(", ")
    };
    match kind {
        FieldKind::Text => "text".into(),
        FieldKind::Name => "text, not empty".into(),
        FieldKind::Flag => "`true` or `false`".into(),
        FieldKind::Integer { min: i64::MIN, .. } => "an integer".into(),
        FieldKind::Integer { min, max: i64::MAX } => format!("an integer from {min}"),
        FieldKind::Integer { min, max } => format!("an integer from {min} to {max}"),
        FieldKind::Number { min, max } => format!("a number from {min} to {max}"),
        FieldKind::Choice(choices) => choice(choices),
        FieldKind::Any => "anything".into(),
        FieldKind::List { items, .. } => format!("a list of {items}"),
        FieldKind::Choices(choices) => format!("a list of {}", choice(choices)),
        FieldKind::Variables => "a map from names to text".into(),
        FieldKind::Object(_) => "a map".into(),
        FieldKind::Objects(_) => "a list of maps".into(),
        FieldKind::Named(_) => "a map from names to maps".into(),
        FieldKind::Words => "a list of texts, not empty".into(),
        FieldKind::PathOrMap { map } => format!("a path, or {map}"),
    }
}
