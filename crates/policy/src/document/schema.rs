//! The JSON Schema of a policy, out of the tables.

use super::fields::{CONTROLS, DOCUMENT, Field, Kind};
use crate::problem::Log;
use crate::tree;
use crate::value::{Map, Value, write_pretty};

/// The JSON Schema of a policy document, for editors and other checkers.
pub fn schema() -> String {
    schema_of(
        "Brig policy",
        "What an agent may do, and within which limits.",
        DOCUMENT,
    )
}

/// The JSON Schema of a file with these fields.
pub fn schema_of(title: &str, about: &str, fields: &[Field]) -> String {
    let mut schema = Map::new();
    schema.insert("$schema", "http://json-schema.org/draft-07/schema#");
    schema.insert("title", title);
    schema.insert("description", about);
    for (key, value) in object(fields).iter() {
        schema.insert(key, value.clone());
    }
    let mut out = String::new();
    write_pretty(&mut out, &Value::Map(schema), 0);
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
        let node = tree::parse_line(default, &mut Log::new("default"));
        map.insert("default", node.map_or(Value::Null, |node| node.to_value()));
    }
    map
}

fn kind(kind: Kind) -> Map {
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
        Kind::Text => map.insert("type", "string"),
        Kind::Name => {
            map.insert("type", "string");
            map.insert("minLength", 1);
        }
        Kind::Flag => map.insert("type", "boolean"),
        Kind::Integer { min, max } => {
            map.insert("type", "integer");
            if min > i64::MIN {
                map.insert("minimum", min);
            }
            if max < i64::MAX {
                map.insert("maximum", max);
            }
        }
        Kind::Number { min, max } => {
            map.insert("type", "number");
            map.insert("minimum", min);
            map.insert("maximum", max);
        }
        Kind::Choice(choices) => return choice(choices),
        Kind::Any => {}
        Kind::Hosts => return list(text(r"^(\*\.)?[^\s,*@]+(:\*)?$")),
        Kind::Tools => return list(text(r"^[^\s,]([^,]*[^\s,])?$")),
        Kind::Commands => return list(text(r"^(/[^\s,]*)?[^\s,/]+( [^\s,]+)*$")),
        Kind::Controls => return list(choice(CONTROLS)),
        Kind::Variables => {
            map.insert("type", "object");
            let names: Map = [("pattern", "^[A-Za-z_][A-Za-z0-9_]*$")]
                .into_iter()
                .collect();
            map.insert("propertyNames", names);
            let values: Map = [("type", "string")].into_iter().collect();
            map.insert("additionalProperties", values);
        }
        Kind::Object(fields) => return object(fields),
        Kind::Objects(fields) => return list(object(fields)),
        Kind::Named(fields) => {
            map.insert("type", "object");
            map.insert("additionalProperties", object(fields));
        }
        Kind::Words => {
            let mut words = list([("type", "string")].into_iter().collect());
            words.insert("minItems", 1);
            return words;
        }
        Kind::Policy => {
            // What may be in a policy is in its own schema.
            map.insert("type", vec!["string", "object"]);
            map.insert("minLength", 1);
        }
    }
    map
}
