//! Values of a checked type out of a tree. In AGT's manner, what pydantic would turn into the
//! right type is taken, with a warning.

use super::Given;
use super::fault::{out_of_range, unknown_key, wrong_type};
use super::fields::{Field, Kind};
use super::lax;
use crate::problem::{Entry, Fault, Log, Position, nearest, quoted};
use crate::tree::{self, Compat, Node, Pair};
use crate::value::Value;

#[derive(Debug)]
pub struct Reader<'l> {
    pub log: &'l mut Log,
    pub compat: Compat,
}

/// The known keys of one map.
#[derive(Debug)]
pub struct Object<'n> {
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
                    Fault::new("policy.missing-key", format!("`{}` is missing", field.name))
                        .fix(format!("add `{}: …`", field.name));
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
            let fault = Fault::new("policy.empty", "must not be empty")
                .fix("give it a value, or remove the key");
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
            (tree::Kind::Scalar(value), Compat::Agt) if lax::flag(value).is_some() => {
                let fault = wrong_type("`true` or `false`", node);
                self.log.warning(node.at, &entry, fault);
                lax::flag(value)
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
            None => fault.fix("write one of them"),
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
            (tree::Kind::Scalar(value), Compat::Agt) if lax::integer(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("an integer", node));
                lax::integer(value)?
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
            (tree::Kind::Scalar(value @ (Value::Int(_) | Value::Big(_))), _) => {
                lax::as_float(value)
            }
            (tree::Kind::Scalar(value), Compat::Agt) if lax::number(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("a number", node));
                lax::number(value)?
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

    /// A map from names that people choose. Those that are no names are reported.
    pub fn named<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &Entry<'_>,
        check: impl Fn(&str) -> Result<(), Fault>,
    ) -> Vec<(&'n str, Object<'n>)> {
        let Some((field, pair)) = object.find(name) else {
            return Vec::new();
        };
        let Kind::Named(fields) = field.kind else {
            unreachable!("`{name}` is no map of names");
        };
        let entry = entry.key(name);
        let tree::Kind::Map(pairs) = &pair.value.kind else {
            let fault = wrong_type("a map", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return Vec::new();
        };
        let mut named = Vec::new();
        for pair in pairs {
            let entry = entry.key(&pair.key);
            if let Err(fault) = check(&pair.key) {
                self.log.error(pair.at, &entry, fault);
            } else if let Some(object) = self.object(&pair.value, fields, &entry) {
                named.push((&*pair.key, object));
            }
        }
        named
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
                    let fault =
                        Fault::new("policy.variable", "holds a NUL character").fix("remove it");
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

    /// The value as it is written, to be read by others.
    pub fn node<'n>(&self, object: &Object<'n>, name: &'static str) -> Option<&'n Node> {
        object.find(name).map(|(_, pair)| &pair.value)
    }

    pub fn any(&mut self, object: &Object<'_>, name: &'static str) -> Option<Given<Value>> {
        let (_, pair) = object.find(name)?;
        Some(Given {
            value: pair.value.to_value(),
            at: Some(pair.value.at),
        })
    }
}
