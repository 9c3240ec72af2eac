//! Tags, which say what a value of YAML is meant to be.

use saphyr_parser::Tag;

use super::Compat;
use super::scalar::resolve;
use crate::problem::{Fault, quoted};
use crate::value::Value;

/// What a tag makes of a scalar. Only AGT's manner allows any.
pub(super) fn scalar(text: &str, tag: &Tag, compat: Compat) -> Result<Value, Fault> {
    if compat == Compat::Strict || !tag.is_yaml_core_schema() {
        return Err(refused(tag));
    }
    if tag.suffix == "str" {
        return Ok(text.into());
    }
    let value = match (resolve(text, compat)?, tag.suffix.as_str()) {
        #[expect(clippy::cast_precision_loss, reason = "a float is what was asked for")]
        (Value::Int(value), "float") => Value::Float(value as f64),
        (value, _) => value,
    };
    let fits = match tag.suffix.as_str() {
        "null" => matches!(value, Value::Null),
        "bool" => matches!(value, Value::Bool(_)),
        "int" => matches!(value, Value::Int(_) | Value::Big(_)),
        "float" => matches!(value, Value::Float(_)),
        _ => false,
    };
    if fits { Ok(value) } else { Err(refused(tag)) }
}

pub(super) fn refused(tag: &Tag) -> Fault {
    let name = if tag.is_yaml_core_schema() {
        format!("!!{}", tag.suffix)
    } else {
        tag.to_string()
    };
    Fault::new(
        "policy.yaml",
        format!("the tag {} is not allowed", quoted(&name)),
    )
    .fix("remove the tag, and quote the value if it is text")
}
