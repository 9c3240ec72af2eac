//! The JSON Schema of a file, from its table of fields.

use brig_python_semantics::{Map, Value};

use crate::fields::{Field, FieldKind};
use crate::problem::ProblemLog;
use crate::tree;

/// The JSON Schema of a file with these fields.
pub fn json_schema(title: &str, about: &str, fields: &[Field]) -> String {
    let mut schema = Map::new();
    schema.insert("$schema", "http://json-schema.org/draft-07/schema#");
    schema.insert("title", title);
    schema.insert("description", about);
    for (key, value) in object(fields).iter() {
        schema.insert(key, value.clone());
    }
    let mut out = Value::Map(schema).to_pretty_json();
    out.push('\n');
    out
}

fn object(fields: &[Field]) -> Map {
    let mut map = Map::new();
    map.insert("type", "object");
    map.insert("additionalProperties", false);
    let required = fields.iter().filter(|field| field.required);
    let required: Vec<&str> = required.map(|field| field.name).collect();
    if !required.is_empty() {
        map.insert("required", required);
    }
    let properties = fields.iter().map(|field| (field.name, property(field)));
    map.insert("properties", properties.collect::<Map>());
    map
}

fn property(field: &Field) -> Map {
    let mut map = Map::new();
    map.insert("description", field.about);
    let mut kind = kind(field.kind);
    if field.nullable
        && let Some(only) = kind.get("type").cloned()
    {
        let mut kinds = match only {
            Value::List(kinds) => kinds,
            only => vec![only],
        };
        kinds.push("null".into());
        kind.insert("type", Value::List(kinds));
    }
    for (key, value) in kind.iter() {
        map.insert(key, value.clone());
    }
    if let Some(default) = field.default {
        let node = tree::parse_line(default, &mut ProblemLog::new("default"));
        map.insert("default", node.map_or(Value::Null, |node| node.to_value()));
    }
    map
}

fn kind(kind: FieldKind) -> Map {
    let mut map = Map::new();
    let choice = |choices: &[&str]| {
        let mut map = Map::new();
        map.insert("type", "string");
        map.insert("enum", choices.to_vec());
        map
    };
    let text = |pattern: &str| {
        let mut map = Map::new();
        map.insert("type", "string");
        map.insert("pattern", pattern);
        map
    };
    let mut list = |items: Map| {
        map.insert("type", "array");
        map.insert("items", items);
        std::mem::take(&mut map)
    };
    match kind {
        FieldKind::Text => map.insert("type", "string"),
        FieldKind::Name => {
            map.insert("type", "string");
            map.insert("minLength", 1);
        }
        FieldKind::Flag => map.insert("type", "boolean"),
        FieldKind::Integer { min, max } => {
            map.insert("type", "integer");
            if min > i64::MIN {
                map.insert("minimum", min);
            }
            if max < i64::MAX {
                map.insert("maximum", max);
            }
        }
        FieldKind::Number { min, max } => {
            map.insert("type", "number");
            map.insert("minimum", min);
            map.insert("maximum", max);
        }
        FieldKind::Choice(choices) => return choice(choices),
        FieldKind::Any => {}
        FieldKind::List { pattern, .. } => return list(text(pattern)),
        FieldKind::Choices(choices) => return list(choice(choices)),
        FieldKind::Variables => {
            map.insert("type", "object");
            let names: Map = [("pattern", "^[A-Za-z_][A-Za-z0-9_]*$")]
                .into_iter()
                .collect();
            map.insert("propertyNames", names);
            let values: Map = [("type", "string")].into_iter().collect();
            map.insert("additionalProperties", values);
        }
        FieldKind::Object(fields) => return object(fields),
        FieldKind::Objects(fields) => return list(object(fields)),
        FieldKind::Named(fields) => {
            map.insert("type", "object");
            map.insert("additionalProperties", object(fields));
        }
        FieldKind::Words => {
            let mut words = list([("type", "string")].into_iter().collect());
            words.insert("minItems", 1);
            return words;
        }
        FieldKind::PathOrMap { .. } => {
            // What may be in the map is in a schema of its own.
            map.insert("type", vec!["string", "object"]);
            map.insert("minLength", 1);
        }
    }
    map
}
