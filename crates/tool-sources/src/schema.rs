//! Schemas that somebody else wrote.

use serde_json::Value;

use crate::SourceError;

/// The largest schema, in bytes of JSON.
const LARGEST: usize = 64 << 10;

/// Of arguments, which are an object.
pub(crate) fn input(tool: &str, schema: Value) -> Result<Value, SourceError> {
    let schema = output(tool, schema)?;
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => Ok(schema),
        _ => Err(invalid(tool, "its `type` is not `object`")),
    }
}

/// Of a result.
pub(crate) fn output(tool: &str, schema: Value) -> Result<Value, SourceError> {
    if !schema.is_object() {
        return Err(invalid(tool, "it is not an object"));
    }
    if schema.to_string().len() > LARGEST {
        return Err(invalid(tool, &format!("it is larger than {LARGEST} bytes")));
    }
    Ok(schema)
}

fn invalid(tool: &str, problem: &str) -> SourceError {
    SourceError::Schema {
        tool: crate::text::clean(tool, 128),
        problem: problem.into(),
    }
}
