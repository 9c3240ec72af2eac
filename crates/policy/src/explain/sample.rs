//! Values that satisfy a condition, or do not: to try a policy with.

use brig_python_semantics::Value;

use crate::document::{Condition, Operator};

/// A value with which the condition matches, if one is easily found.
pub(crate) fn satisfying(condition: &Condition) -> Option<Value> {
    let value = &condition.value;
    let sample = match condition.operator {
        Operator::Eq | Operator::Gte | Operator::Lte | Operator::Contains => value.clone(),
        Operator::Ne | Operator::NotIn => "something else".into(),
        Operator::Gt => step(value, 1)?,
        Operator::Lt => step(value, -1)?,
        Operator::In => match value {
            Value::List(items) => items.first()?.clone(),
            Value::Text(text) => text.as_str().into(),
            Value::Map(map) => map.iter().next()?.0.into(),
            _ => return None,
        },
        Operator::Matches => plain(value.as_text()?)?.into(),
    };
    (!matches!(sample, Value::Null)).then_some(sample)
}

/// A value with which the condition does not match, starting from the one that does.
pub(crate) fn avoiding(condition: &Condition, given: &Value) -> Option<Value> {
    let value = &condition.value;
    match condition.operator {
        Operator::Contains => match (given, value) {
            (Value::Text(text), Value::Text(part)) if !part.is_empty() => {
                Some(text.replace(part.as_str(), "").into())
            }
            (Value::List(items), value) => {
                let rest = items.iter().filter(|item| !item.equals(value));
                Some(Value::List(rest.cloned().collect()))
            }
            _ => None,
        },
        Operator::Ne | Operator::Gt | Operator::Lt => {
            (!matches!(value, Value::Null)).then(|| value.clone())
        }
        Operator::NotIn => match value {
            Value::List(items) => items.first().cloned(),
            Value::Text(text) => Some(text.as_str().into()),
            _ => None,
        },
        Operator::Gte => step(value, -1),
        Operator::Lte => step(value, 1),
        Operator::Eq | Operator::In | Operator::Matches => None,
    }
}

/// Text that a pattern without special characters finds.
fn plain(pattern: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'b' => {}
                's' => text.push(' '),
                'd' => text.push('0'),
                'w' => text.push('x'),
                c if !c.is_alphanumeric() => text.push(c),
                _ => return None,
            },
            '^' | '$' => {}
            '.' => text.push('x'),
            '(' | ')' | '[' | ']' | '{' | '}' | '|' | '*' | '?' => return None,
            // One more of what came before is still a match.
            '+' => {}
            c => text.push(c),
        }
    }
    Some(text)
}

/// The number next to it, or text that sorts on that side.
fn step(value: &Value, by: i64) -> Option<Value> {
    match value {
        Value::Bool(value) => Some(Value::Int(i64::from(*value) + by)),
        Value::Int(value) => value.checked_add(by).map(Value::Int),
        Value::Float(value) => Some(Value::Float(if by > 0 { value + 1.0 } else { value - 1.0 })),
        Value::Text(text) if by > 0 => Some(format!("{text}0").into()),
        Value::Text(text) if !text.is_empty() => Some("".into()),
        _ => None,
    }
}
