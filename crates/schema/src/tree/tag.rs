//! YAML tags, such as `!!str`.

use brig_python_semantics::Value;
use brig_reason::ReasonCode;
use saphyr_parser::Tag;

use super::Compat;
use super::scalar::resolve;
use crate::problem::{Fault, quoted};

/// A scalar with a tag. Tags are allowed only for AGT.
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
        ReasonCode::PolicyYaml,
        format!("the tag {} is not allowed", quoted(&name)),
    )
    .fix("remove the tag, and quote the value if it is text")
}
