//! A JSON Schema of arguments or results, whose checks take a bounded time. A server of somebody else writes the schema,
//! and code in the sandbox the value.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// The most steps of one check: the size of the schema, times that of the value.
const MOST_STEPS: usize = 50_000_000;
/// The largest schema, with every reference replaced by what it refers to.
const LARGEST: usize = 20_000;
/// References within references.
const DEEPEST: usize = 64;
/// How often a pattern goes back in one text. Without a bound, a pattern with a lookahead takes time that doubles with
/// every character.
const BACKTRACKS: usize = 1000;
/// The largest compiled pattern, in bytes.
const PATTERN: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Schema {
    validator: Validator,
    /// With references replaced.
    size: usize,
    /// How many patterns that are.
    patterns: usize,
}

impl Schema {
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let mut parts = Parts::default();
        expand(schema, schema, 0, &mut parts)?;
        let patterns = PatternOptions::fancy_regex();
        let patterns = patterns.backtrack_limit(BACKTRACKS).size_limit(PATTERN);
        let options = jsonschema::options().with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|error| error.to_string())?;
        Ok(Self {
            validator,
            size: parts.all,
            patterns: parts.patterns,
        })
    }

    /// The most that a check of this value takes.
    fn steps(&self, value: &Value) -> usize {
        let (values, bytes) = count(value);
        let matching = values.saturating_mul(BACKTRACKS).saturating_add(bytes);
        let matching = self.patterns.saturating_mul(matching);
        self.size.saturating_mul(values).saturating_add(matching)
    }

    /// The first way in which a value does not match.
    pub(super) fn problem(&self, value: &Value) -> Option<String> {
        if self.steps(value) > MOST_STEPS {
            return Some("it has too many values to be checked".to_owned());
        }
        let error = self.validator.iter_errors(value).next()?;
        let at = error.instance_path().to_string();
        match at.is_empty() {
            true => Some(error.to_string()),
            false => Some(format!("{error} at `{at}`")),
        }
    }
}

/// What a schema consists of.
#[derive(Default)]
struct Parts {
    all: usize,
    patterns: usize,
}

/// Counts the parts of a schema. One that refers to itself has no end, and a check of it takes time that doubles with
/// every level of the value.
fn expand(root: &Value, schema: &Value, depth: usize, parts: &mut Parts) -> Result<(), String> {
    parts.all += 1;
    if parts.all > LARGEST {
        return Err(format!("it has more than {LARGEST} parts"));
    }
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("$ref", Value::String(target)) => {
                        let pointer = target.strip_prefix('#');
                        let target = pointer.and_then(|pointer| root.pointer(pointer));
                        let target = target.ok_or("a `$ref` leads outside of it")?;
                        if depth >= DEEPEST {
                            return Err("it refers to itself, or is nested too deeply".to_owned());
                        }
                        expand(root, target, depth + 1, parts)?;
                    }
                    ("$dynamicRef" | "$recursiveRef", _) => {
                        return Err(format!("`{name}` is not supported"));
                    }
                    (name, field) => {
                        parts.patterns += match (name, field) {
                            ("pattern", Value::String(_)) => 1,
                            ("patternProperties", Value::Object(patterns)) => patterns.len(),
                            _ => 0,
                        };
                        expand(root, field, depth, parts)?;
                    }
                }
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| expand(root, item, depth, parts)),
        _ => Ok(()),
    }
}

/// How many values it consists of, and how many bytes of text they and the names of fields have.
fn count(value: &Value) -> (usize, usize) {
    let add = |(values, bytes): (usize, usize), one: &Value| {
        let (more, text) = count(one);
        (values + more, bytes + text)
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 0), add),
        Value::Object(fields) => {
            // A name is a text that patterns are compared with, too.
            let names: usize = fields.keys().map(String::len).sum();
            fields.values().fold((1 + fields.len(), names), add)
        }
        Value::String(text) => (1, text.len()),
        _ => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_followed_and_those_without_an_end_are_refused() {
        let paper = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/name"}, "b": {"$ref": "#/$defs/name"}},
            "$defs": {"name": {"type": "string"}},
        });
        let schema = Schema::new(&paper).expect("ordinary");
        assert_eq!(schema.problem(&json!({"a": "x"})), None);
        assert!(schema.problem(&json!({"a": 1})).is_some());
        let tree = json!({
            "oneOf": [
                {"properties": {"op": {"const": "a"}, "arg": {"$ref": "#"}}},
                {"properties": {"op": {"const": "b"}, "arg": {"$ref": "#"}}},
            ]
        });
        assert!(Schema::new(&tree).is_err());
        let mut doubled = json!({"$defs": {"x0": {"type": "object"}}});
        for level in 1..40 {
            let below = json!({"$ref": format!("#/$defs/x{}", level - 1)});
            doubled["$defs"][format!("x{level}")] = json!({"allOf": [below, below]});
        }
        doubled["$ref"] = json!("#/$defs/x39");
        assert!(Schema::new(&doubled).is_err());
        for other in [
            "file:///etc/passwd",
            "https://example.com/schema",
            "other.json",
        ] {
            assert!(Schema::new(&json!({"$ref": other})).is_err(), "{other}");
        }
    }

    #[test]
    fn a_value_of_many_parts_is_not_checked_for_long() {
        let branches: Vec<Value> = (0..5000).map(|n| json!({"const": n})).collect();
        let schema = Schema::new(&json!({"items": {"anyOf": branches}})).expect("large");
        let few = json!([1, 2, 3]);
        assert_eq!(schema.problem(&few), None);
        let many: Vec<Value> = (0..50_000).map(|_| json!(-1)).collect();
        let problem = schema.problem(&Value::Array(many)).expect("refused");
        assert!(problem.contains("too many values"), "{problem}");
    }

    /// A server's pattern, and a text of the code's: together they must not keep the owner busy.
    #[test]
    fn a_pattern_that_goes_back_without_end_is_given_up() {
        let schema = json!({"items": {"pattern": "^(?=a)(a|aa)+$"}});
        let schema = Schema::new(&schema).expect("a lookahead is supported");
        assert_eq!(schema.problem(&json!(["a", "aaaa"])), None);
        assert!(schema.problem(&json!(["b"])).is_some());
        let text = format!("{}!", "a".repeat(60));
        assert!(schema.problem(&json!([text])).is_some());
        let many: Vec<Value> = (0..90_000).map(|_| json!(text)).collect();
        let problem = schema.problem(&Value::Array(many)).expect("refused");
        assert!(problem.contains("too many values"), "{problem}");
        let large = json!({"items": {"pattern": "^(a{1000}){1000}$"}});
        assert!(Schema::new(&large).is_err());
    }
}
