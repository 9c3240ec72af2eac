//! The module `brig_tools`: a Python function for every tool, with its signature and description.

use std::collections::BTreeSet;
use std::fmt::Write;

use brig_sandbox::ToolSpec;
use brig_sandbox::tools::ToolSet;
use serde_json::Value;

/// How functions reach the tools.
const CLIENT: &str = include_str!("client.py");

/// Makes the functions builtins, so that their names are simply there.
pub(super) const SITE: &str = include_str!("sitecustomize.py");

/// Names that no function can have: Python's keywords, and what the module itself contains.
const TAKEN: &str = "False None True and as assert async await break class continue def del elif else except \
    finally for from global if import in is lambda nonlocal not or pass raise return try while with yield \
    aio annotations call_tool call_tool_async tools ToolError \
    AttributeError Exception IndexError OSError ValueError bytearray bytes callable dict float getattr globals hasattr int isinstance iter \
    len list map max min next object open print property range repr set setattr sorted staticmethod str sum super \
    tuple type vars zip";

pub(super) fn module(tools: &ToolSet) -> Vec<u8> {
    let mut text = CLIENT.to_owned();
    let mut names = BTreeSet::new();
    let python = |spec: &ToolSpec| spec.name.as_str().replace(['-', '.', '/'], "_");
    for spec in tools.specs() {
        let name = python(spec);
        // A tool never answers to the name of another one.
        let exact = spec.name.as_str() == name;
        let alone = tools.specs().filter(|other| python(other) == name).count() == 1;
        if is_free(&name) && (exact || alone) {
            function(&mut text, &name, spec);
            names.insert(name);
        }
    }
    let all: Vec<_> = names.iter().map(|name| literal(name)).collect();
    // Writing to a string can't fail.
    let _ = writeln!(text, "\ntools = ({})", tuple(&all));
    let _ = writeln!(
        text,
        "__all__ = ['ToolError', 'aio', 'call_tool', 'call_tool_async', *tools]"
    );
    text.push_str("\n\nif __name__ == '__main__':\n    _main()\n");
    text.into_bytes()
}

fn tuple(items: &[String]) -> String {
    items.iter().map(|item| format!("{item},")).collect()
}

fn function(text: &mut String, name: &str, spec: &ToolSpec) {
    let properties = spec
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    let required: Vec<&str> = spec
        .input_schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let optional = properties.into_iter().flat_map(|all| all.keys());
    let optional = optional
        .map(String::as_str)
        .filter(|name| !required.contains(name));
    let kind = |name: &str| annotation(properties.and_then(|all| all.get(name)));
    let (optional, odd): (Vec<_>, Vec<_>) = optional.partition(|name| is_identifier(name));
    let (needed, odd_needed): (Vec<_>, Vec<_>) = required
        .iter()
        .copied()
        .partition(|name| is_identifier(name));
    let whole = odd.is_empty() && odd_needed.is_empty();
    let mut signature: Vec<String> = (needed.iter())
        .map(|name| format!("{name}: {}", kind(name)))
        .collect();
    if !optional.is_empty() {
        // A schema does not say in which order they come.
        signature.push("*".into());
    }
    signature.extend((optional.iter()).map(|name| format!("{name}: {} = _UNSET", kind(name))));
    let given = needed.into_iter().chain(optional);
    let mut arguments: Vec<String> = given
        .map(|name| format!("{}: {name}", literal(name)))
        .collect();
    let closed = spec.input_schema.get("additionalProperties") == Some(&Value::Bool(false));
    if arguments.is_empty() && !closed {
        // Nothing is known about the arguments.
        signature.push("*_positional".into());
        arguments.push("**({'args': _positional} if _positional else {})".into());
    }
    if !closed || !whole {
        signature.push("**_more".into());
        arguments.push("**_more".into());
    }
    let result = annotation(spec.output_schema.as_ref());
    let _ = write!(
        text,
        "\n\ndef {name}({}) -> {result}:\n    {}\n    return _call({}, {{{}}})\n",
        signature.join(", "),
        literal(&spec.description),
        literal(spec.name.as_str()),
        arguments.join(", "),
    );
}

fn annotation(schema: Option<&Value>) -> &'static str {
    match schema
        .and_then(|schema| schema.get("type"))
        .and_then(Value::as_str)
    {
        Some("string") => "str",
        Some("integer") => "int",
        Some("number") => "float",
        Some("boolean") => "bool",
        Some("array") => "list",
        Some("object") => "dict",
        _ => "object",
    }
}

/// JSON's strings are Python's, as `serde_json` writes them.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_free(name: &str) -> bool {
    is_identifier(name) && !name.starts_with('_')
}

fn is_identifier(name: &str) -> bool {
    let first = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    // `__debug__` can't be assigned to, and Python mangles or reserves others.
    first
        && !name.starts_with("__")
        && !matches!(name, "_call" | "_UNSET" | "_more" | "_positional")
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !TAKEN.split_whitespace().any(|taken| taken == name)
}

#[cfg(test)]
mod tests {
    use brig_sandbox::ToolName;
    use serde_json::json;

    use super::*;

    fn generated(name: &str, description: &str, schema: Value) -> String {
        let mut spec = ToolSpec::new(ToolName::new(name).expect("a name"), description);
        spec.input_schema = schema;
        let mut text = String::new();
        function(&mut text, "tool", &spec);
        text
    }

    #[test]
    fn a_signature_has_what_the_schema_names() {
        let schema = json!({
            "properties": { "b": { "type": "integer" }, "a": { "type": "string" } },
            "required": ["b"],
            "additionalProperties": false
        });
        assert_eq!(
            generated("x/tool", "Does it.", schema),
            "\n\ndef tool(b: int, *, a: str = _UNSET) -> object:\n    \"Does it.\"\n    \
             return _call(\"x/tool\", {\"b\": b, \"a\": a})\n"
        );
        assert_eq!(
            generated("tool", "", json!({ "type": "object" })),
            "\n\ndef tool(*_positional, **_more) -> object:\n    \"\"\n    \
             return _call(\"tool\", {**({'args': _positional} if _positional else {}), **_more})\n"
        );
    }

    #[test]
    fn nothing_in_a_schema_becomes_code() {
        let schema = json!({
            "properties": { "a): pass\nimport os": {}, "class": {}, "_call": {} },
            "required": ["b=os.system('x')"],
            "additionalProperties": false
        });
        let text = generated("tool", "\"\"\"\nimport os\\", schema);
        assert_eq!(
            text,
            "\n\ndef tool(**_more) -> object:\n    \"\\\"\\\"\\\"\\nimport os\\\\\"\n    \
             return _call(\"tool\", {**_more})\n"
        );
    }

    #[test]
    fn names_of_python_and_of_the_module_are_not_used() {
        for taken in ["import", "call_tool", "_os", "1st", "a b", ""] {
            assert!(!is_free(taken), "{taken}");
        }
        assert!(is_free("fetch_arxiv"));
    }
}
