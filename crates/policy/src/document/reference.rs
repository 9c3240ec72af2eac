//! The tables as a page for people.

use std::fmt::Write as _;

use super::fields::{CONDITION, CONTROLS, DEFAULTS, DOCUMENT, Field, Kind, MOUNTS, RULE};

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
        out.push_str(&reference_of(title, fields));
    }
    out
}

/// These fields, in Markdown.
pub fn reference_of(title: &str, fields: &[Field]) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "### {title}\n\n| field | what it holds | if missing | what it means |\n|---|---|---|---|\n"
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
            holds(field.kind),
            field.about
        );
    }
    out.push('\n');
    out
}

fn holds(kind: Kind) -> String {
    let choice = |choices: &[&str]| {
        let quoted: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        quoted.join(", ")
    };
    match kind {
        Kind::Text => "text".into(),
        Kind::Name => "text, not empty".into(),
        Kind::Flag => "`true` or `false`".into(),
        Kind::Integer { min: i64::MIN, .. } => "an integer".into(),
        Kind::Integer { min, max: i64::MAX } => format!("an integer from {min}"),
        Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
        Kind::Number { min, max } => format!("a number from {min} to {max}"),
        Kind::Choice(choices) => choice(choices),
        Kind::Any => "anything".into(),
        Kind::Hosts => "a list of hosts".into(),
        Kind::Tools => "a list of names".into(),
        Kind::Commands => "a list of programs".into(),
        Kind::Controls => format!("a list of {}", choice(CONTROLS)),
        Kind::Variables => "a map from names to text".into(),
        Kind::Object(_) => "a map".into(),
        Kind::Objects(_) => "a list of maps".into(),
        Kind::Named(_) => "a map from names to maps".into(),
        Kind::Words => "a list of texts, not empty".into(),
        Kind::Policy => "a path, or a [policy](policy.md)".into(),
    }
}
