//! Values of a checked type out of a tree. In AGT's manner, what pydantic would turn into the
//! right type is taken, with a warning.

use super::Given;
use super::fields::{Field, Kind};
use crate::problem::{Entry, Fault, Log, Position, nearest, quoted};
use crate::tree::{self, Compat, Node, Pair};
use crate::value::Value;

pub(crate) struct Reader<'l> {
    pub log: &'l mut Log,
    pub compat: Compat,
}

/// The known keys of one map.
pub(crate) struct Object<'n> {
    pub at: Position,
    pairs: &'n [Pair],
    fields: &'static [Field],
}

impl<'n> Object<'n> {
    /// The value of a field, unless it is missing or null where that means the same.
    fn find(&self, name: &str) -> Option<(&'static Field, &'n Pair)> {
        let field = self.field(name);
        let pair = self.pairs.iter().rev().find(|pair| pair.key == name)?;
        let null = matches!(pair.value.kind, tree::Kind::Scalar(Value::Null));
        (!(null && field.nullable)).then_some((field, pair))
    }

    fn field(&self, name: &str) -> &'static Field {
        (self.fields.iter().find(|field| field.name == name))
            .unwrap_or_else(|| unreachable!("`{name}` is in no table"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

fn wrong_type(wanted: &str, node: &Node) -> Fault {
    Fault::new(
        "policy.type",
        format!("must be {wanted}, found {}", node.describe()),
    )
}

impl Reader<'_> {
    /// An error, or a warning where AGT would not mind. Says whether it was the former.
    fn mind(&mut self, at: Position, entry: &Entry<'_>, fault: Fault) {
        match self.compat {
            Compat::Strict => self.log.error(at, entry, fault),
            Compat::Agt => self.log.warning(at, entry, fault),
        }
    }

    pub fn object<'n>(
        &mut self,
        node: &'n Node,
        fields: &'static [Field],
        entry: &Entry<'_>,
    ) -> Option<Object<'n>> {
        let tree::Kind::Map(pairs) = &node.kind else {
            self.log.error(node.at, entry, wrong_type("a map", node));
            return None;
        };
        for pair in pairs {
            if !fields.iter().any(|field| field.name == pair.key) {
                let fault = unknown_key(&pair.key, fields);
                self.mind(pair.at, &entry.key(&pair.key), fault);
            }
        }
        for field in fields.iter().filter(|field| field.required) {
            if !pairs.iter().any(|pair| pair.key == field.name) {
                let fault =
                    Fault::new("policy.missing-key", format!("`{}` is missing", field.name));
                self.log.error(node.at, entry, fault);
            }
        }
        Some(Object {
            at: node.at,
            pairs,
            fields,
        })
    }

    pub fn child<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<Object<'n>> {
        let (field, pair) = object.find(name)?;
        let Kind::Object(fields) = field.kind else {
            unreachable!("`{name}` is no object");
        };
        self.object(&pair.value, fields, &entry.key(name))
    }

    pub fn text(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<Given<String>> {
        let (field, pair) = object.find(name)?;
        let entry = entry.key(name);
        let text = self.text_of(&pair.value, &entry)?;
        if text.is_empty() && matches!(field.kind, Kind::Name) {
            let fault = Fault::new("policy.empty", "must not be empty");
            self.mind(pair.value.at, &entry, fault);
        }
        Some(Given {
            value: text.to_owned(),
            at: Some(pair.value.at),
        })
    }

    fn text_of<'n>(&mut self, node: &'n Node, entry: &Entry<'_>) -> Option<&'n str> {
        match &node.kind {
            tree::Kind::Scalar(Value::Text(text)) => Some(text),
            kind => {
                let mut fault = wrong_type("text", node);
                if let tree::Kind::Scalar(value) = kind
                    && !matches!(value, Value::Null)
                {
                    fault = fault.fix(format!("quote it: \"{}\"", value.to_text()));
                }
                self.log.error(node.at, entry, fault);
                None
            }
        }
    }

    pub fn flag(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<bool> {
        let (_, pair) = object.find(name)?;
        let node = &pair.value;
        let entry = entry.key(name);
        match (&node.kind, self.compat) {
            (tree::Kind::Scalar(Value::Bool(value)), _) => Some(*value),
            (tree::Kind::Scalar(value), Compat::Agt) if lax_flag(value).is_some() => {
                let fault = wrong_type("`true` or `false`", node);
                self.log.warning(node.at, &entry, fault);
                lax_flag(value)
            }
            _ => {
                let fault = wrong_type("`true` or `false`", node);
                self.log.error(node.at, &entry, fault);
                None
            }
        }
    }

    pub fn choice(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<Given<&'static str>> {
        let (field, pair) = object.find(name)?;
        let Kind::Choice(choices) = field.kind else {
            unreachable!("`{name}` is no choice");
        };
        let node = &pair.value;
        let entry = entry.key(name);
        let list = choices.join(", ");
        let tree::Kind::Scalar(Value::Text(given)) = &node.kind else {
            let fault = wrong_type(&format!("one of {list}"), node);
            self.log.error(node.at, &entry, fault);
            return None;
        };
        if let Some(choice) = choices.iter().find(|choice| *choice == given) {
            return Some(Given {
                value: choice,
                at: Some(node.at),
            });
        }
        let fault = Fault::new(
            "policy.choice",
            format!("must be one of {list}, found {}", quoted(given)),
        );
        let fault = match nearest(given, choices.iter().copied()) {
            Some(meant) => fault.fix(format!("did you mean `{meant}`?")),
            None => fault,
        };
        self.log.error(node.at, &entry, fault);
        None
    }

    pub fn integer(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<Given<i64>> {
        let (field, pair) = object.find(name)?;
        let Kind::Integer { min, max } = field.kind else {
            unreachable!("`{name}` is no integer");
        };
        let node = &pair.value;
        let entry = entry.key(name);
        let value = match (&node.kind, self.compat) {
            (tree::Kind::Scalar(value @ (Value::Int(_) | Value::Big(_))), _) => value.clone(),
            (tree::Kind::Scalar(value), Compat::Agt) if lax_integer(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("an integer", node));
                lax_integer(value)?
            }
            _ => {
                let fault = wrong_type("an integer", node);
                self.log.error(node.at, &entry, fault);
                return None;
            }
        };
        match value {
            Value::Int(value) if (min..=max).contains(&value) => Some(Given {
                value,
                at: Some(node.at),
            }),
            value => {
                self.mind(
                    node.at,
                    &entry,
                    out_of_range(&value, &min.to_string(), &max.to_string()),
                );
                None
            }
        }
    }

    pub fn number(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Option<Given<f64>> {
        let (field, pair) = object.find(name)?;
        let Kind::Number { min, max } = field.kind else {
            unreachable!("`{name}` is no number");
        };
        let node = &pair.value;
        let entry = entry.key(name);
        let value = match (&node.kind, self.compat) {
            (tree::Kind::Scalar(Value::Float(value)), _) => *value,
            (tree::Kind::Scalar(value @ (Value::Int(_) | Value::Big(_))), _) => as_float(value),
            (tree::Kind::Scalar(value), Compat::Agt) if lax_number(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("a number", node));
                lax_number(value)?
            }
            _ => {
                let fault = wrong_type("a number", node);
                self.log.error(node.at, &entry, fault);
                return None;
            }
        };
        if value >= min && value <= max {
            return Some(Given {
                value,
                at: Some(node.at),
            });
        }
        let fault = out_of_range(&Value::Float(value), &min.to_string(), &max.to_string());
        self.mind(node.at, &entry, fault);
        None
    }

    /// A list in which every item is checked on its own. A bad one is left out; AGT's manner
    /// makes that a warning.
    pub fn list<T>(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
        check: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Given<T>>> {
        let (_, pair) = object.find(name)?;
        let entry = entry.key(name);
        let tree::Kind::List(items) = &pair.value.kind else {
            let fault = wrong_type("a list", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return None;
        };
        let mut list = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let entry = entry.index(i);
            let Some(text) = self.text_of(item, &entry) else {
                continue;
            };
            match check(text) {
                Ok(value) => list.push(Given {
                    value,
                    at: Some(item.at),
                }),
                Err(fault) => self.mind(item.at, &entry, fault),
            }
        }
        Some(list)
    }

    pub fn objects<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Vec<Option<Object<'n>>> {
        let Some((field, pair)) = object.find(name) else {
            return Vec::new();
        };
        let Kind::Objects(fields) = field.kind else {
            unreachable!("`{name}` is no list of objects");
        };
        let entry = entry.key(name);
        let tree::Kind::List(items) = &pair.value.kind else {
            let fault = wrong_type("a list", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return Vec::new();
        };
        (items.iter().enumerate())
            .map(|(i, item)| self.object(item, fields, &entry.index(i)))
            .collect()
    }

    pub fn variables(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &Entry<'_>,
    ) -> Vec<(String, Given<String>)> {
        let Some((_, pair)) = object.find(name) else {
            return Vec::new();
        };
        let entry = entry.key(name);
        let tree::Kind::Map(pairs) = &pair.value.kind else {
            let fault = wrong_type("a map", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return Vec::new();
        };
        let mut variables = Vec::new();
        for pair in pairs {
            let entry = entry.key(&pair.key);
            let value = self.text_of(&pair.value, &entry);
            let mut name = pair.key.chars();
            let sound = name
                .next()
                .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && name.all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !sound {
                let fault = Fault::new(
                    "policy.variable",
                    format!("{} is no name of a variable", quoted(&pair.key)),
                )
                .fix("a name is letters, digits and `_`, and does not start with a digit");
                self.log.error(pair.at, &entry, fault);
            } else if let Some(value) = value {
                if value.contains('\0') {
                    let fault = Fault::new("policy.variable", "holds a NUL character");
                    self.log.error(pair.value.at, &entry, fault);
                }
                let value = Given {
                    value: value.to_owned(),
                    at: Some(pair.value.at),
                };
                variables.push((pair.key.clone(), value));
            }
        }
        variables
    }

    pub fn any(&mut self, object: &Object<'_>, name: &'static str) -> Option<Given<Value>> {
        let (_, pair) = object.find(name)?;
        Some(Given {
            value: pair.value.to_value(),
            at: Some(pair.value.at),
        })
    }
}

fn unknown_key(key: &str, fields: &'static [Field]) -> Fault {
    let fault = Fault::new("policy.unknown-key", format!("unknown key {}", quoted(key)));
    if key == "dynamic_condition" {
        return fault.fix("conditions on time and budget are not supported; remove it");
    }
    if let Some(meant) = nearest(key, fields.iter().map(|field| field.name)) {
        return fault.fix(format!("did you mean `{meant}`?"));
    }
    let elsewhere = super::fields::DEFAULTS
        .iter()
        .any(|field| field.name == key);
    if elsewhere && fields.iter().any(|field| field.name == "defaults") {
        return fault.fix(format!("`{key}` belongs under `defaults`"));
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    fault.fix(format!("known keys are {}", names.join(", ")))
}

fn out_of_range(value: &Value, min: &str, max: &str) -> Fault {
    let range = if max == i64::MAX.to_string() {
        format!("at least {min}")
    } else {
        format!("{min} to {max}")
    };
    Fault::new(
        "policy.range",
        format!("{} is out of range", quoted(&value.to_text())),
    )
    .fix(format!("give a value of {range}"))
}

fn as_float(value: &Value) -> f64 {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "limits need no 64 bits")]
        Value::Int(value) => *value as f64,
        value => value.to_text().parse().unwrap_or(f64::NAN),
    }
}

fn lax_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        Value::Float(value) if *value == 0.0 => Some(false),
        Value::Float(value) if *value == 1.0 => Some(true),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// Single underscores between digits are allowed, as in Python's own literals.
fn without_underscores(text: &str) -> Option<String> {
    let text = text.trim();
    let bad = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!bad).then(|| text.replace('_', ""))
}

fn lax_integer(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(value) => Some(Value::Int(i64::from(*value))),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => {
            Value::integer(&format!("{value:.0}"))
        }
        Value::Text(text) => {
            let text = without_underscores(text)?;
            let whole = match text.split_once('.') {
                Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => {
                    whole
                }
                Some(_) => return None,
                None => &text,
            };
            Value::integer(whole)
        }
        _ => None,
    }
}

fn lax_number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Text(text) => without_underscores(text)?.parse().ok(),
        _ => None,
    }
}
