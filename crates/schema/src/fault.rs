//! Faults that any file can have.

use brig_python_semantics::Value;
use brig_reason::ReasonCode;

use crate::fields::{Field, FieldKind};
use crate::problem::{Fault, nearest, quoted};
use crate::tree::Node;

pub(super) fn wrong_type(wanted: &str, node: &Node) -> Fault {
    Fault::new(
        ReasonCode::PolicyType,
        format!("must be {wanted}, found {}", node.describe()),
    )
    .fix(format!("give {wanted}"))
}

pub(super) fn unknown_key(
    key: &str,
    fields: &'static [Field],
    fixes: &[(&str, &'static str)],
) -> Fault {
    let fault = Fault::new(
        ReasonCode::PolicyUnknownKey,
        format!("unknown key {}", quoted(key)),
    );
    if let Some((_, fix)) = fixes.iter().find(|(known, _)| *known == key) {
        return fault.fix(*fix);
    }
    if let Some(meant) = nearest(key, fields.iter().map(|field| field.name)) {
        return fault.fix(format!("did you mean `{meant}`?"));
    }
    let parent = fields.iter().find(|field| match field.kind {
        FieldKind::Object(inner) => inner.iter().any(|field| field.name == key),
        _ => false,
    });
    if let Some(parent) = parent {
        return fault.fix(format!("`{key}` belongs under `{}`", parent.name));
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    fault.fix(format!("known keys are {}", names.join(", ")))
}

pub(super) fn out_of_range(value: &Value, min: &str, max: &str) -> Fault {
    let range = if max == i64::MAX.to_string() {
        format!("at least {min}")
    } else {
        format!("{min} to {max}")
    };
    Fault::new(
        ReasonCode::PolicyRange,
        format!("{} is out of range", quoted(&value.to_text())),
    )
    .fix(format!("give a value of {range}"))
}
