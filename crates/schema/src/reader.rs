//! Values of a checked type from a tree. With [`Compat::Agt`], a value that pydantic would coerce to
//! the right type is coerced, with a warning.

use brig_python_semantics::Value;
use brig_reason::ReasonCode;

use crate::coerce;
use crate::fault::{out_of_range, unknown_key, wrong_type};
use crate::fields::{Field, FieldKind};
use crate::problem::{Fault, KeyPath, Position, ProblemLog, nearest, quoted};
use crate::tree::{Compat, Node, NodeKind, Pair};

/// A value, and where it was given; nowhere if it is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    /// The value itself.
    pub value: T,
    /// Where it was given. `None` if it is the default.
    pub at: Option<Position>,
}

impl<T> Given<T> {
    /// A default, which no file gave.
    pub fn default_of(value: T) -> Self {
        Self { value, at: None }
    }
}

/// Reads typed values from a tree, and reports what is wrong with them.
#[derive(Debug)]
pub struct Reader<'l> {
    /// Where problems are reported.
    pub log: &'l mut ProblemLog,
    /// How strictly values are read.
    pub compat: Compat,
    key_fixes: &'static [(&'static str, &'static str)],
}

/// The known keys of one map.
#[derive(Debug)]
pub struct Object<'n> {
    /// Where the map begins.
    pub at: Position,
    pairs: &'n [Pair],
    fields: &'static [Field],
}

impl<'n> Object<'n> {
    /// The value of a field, unless it is missing or null where that means the same.
    fn find(&self, name: &str) -> Option<(&'static Field, &'n Pair)> {
        let field = self.field(name);
        let pair = self.pairs.iter().rev().find(|pair| pair.key == name)?;
        let null = matches!(pair.value.kind, NodeKind::Scalar(Value::Null));
        (!(null && field.nullable)).then_some((field, pair))
    }

    fn field(&self, name: &str) -> &'static Field {
        (self.fields.iter().find(|field| field.name == name))
            .unwrap_or_else(|| unreachable!("`{name}` is in no table"))
    }

    /// Whether the field has a value. A `null` that means the same as leaving it out is none.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

impl<'l> Reader<'l> {
    /// A reader that reports to this log.
    pub fn new(log: &'l mut ProblemLog, compat: Compat) -> Self {
        Self {
            log,
            compat,
            key_fixes: &[],
        }
    }

    /// Fixes for keys that other readers of the format know, and this one does not.
    pub fn key_fixes(mut self, fixes: &'static [(&'static str, &'static str)]) -> Self {
        self.key_fixes = fixes;
        self
    }
}

impl Reader<'_> {
    /// Reports an error, or a warning where AGT accepts it.
    fn error_unless_agt(&mut self, at: Position, entry: &KeyPath<'_>, fault: Fault) {
        match self.compat {
            Compat::Strict => self.log.error(at, entry, fault),
            Compat::Agt => self.log.warning(at, entry, fault),
        }
    }

    /// Reads a map of these fields. Unknown keys and missing required keys are reported. `None` if
    /// it is not a map.
    pub fn object<'n>(
        &mut self,
        node: &'n Node,
        fields: &'static [Field],
        entry: &KeyPath<'_>,
    ) -> Option<Object<'n>> {
        let NodeKind::Map(pairs) = &node.kind else {
            self.log.error(node.at, entry, wrong_type("a map", node));
            return None;
        };
        for pair in pairs {
            if !fields.iter().any(|field| field.name == pair.key) {
                let fault = unknown_key(&pair.key, fields, self.key_fixes);
                self.error_unless_agt(pair.at, &entry.key(&pair.key), fault);
            }
        }
        for field in fields.iter().filter(|field| field.required) {
            if !pairs.iter().any(|pair| pair.key == field.name) {
                let fault = Fault::new(
                    ReasonCode::PolicyMissingKey,
                    format!("`{}` is missing", field.name),
                )
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

    /// Reads a field that is a map. `None` if it is missing or not a map.
    pub fn child<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Object<'n>> {
        let (field, pair) = object.find(name)?;
        let FieldKind::Object(fields) = field.kind else {
            unreachable!("`{name}` is not an object");
        };
        self.object(&pair.value, fields, &entry.key(name))
    }

    /// Reads text. `None` if it is missing or not text.
    pub fn text(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Given<String>> {
        let (field, pair) = object.find(name)?;
        let entry = entry.key(name);
        let text = self.text_of(&pair.value, &entry)?;
        if text.is_empty() && matches!(field.kind, FieldKind::Name) {
            let fault = Fault::new(ReasonCode::PolicyEmpty, "must not be empty")
                .fix("give it a value, or remove the key");
            self.error_unless_agt(pair.value.at, &entry, fault);
        }
        Some(Given {
            value: text.to_owned(),
            at: Some(pair.value.at),
        })
    }

    fn text_of<'n>(&mut self, node: &'n Node, entry: &KeyPath<'_>) -> Option<&'n str> {
        match &node.kind {
            NodeKind::Scalar(Value::Text(text)) => Some(text),
            kind => {
                let mut fault = wrong_type("text", node);
                if let NodeKind::Scalar(value) = kind
                    && !matches!(value, Value::Null)
                {
                    fault = fault.fix(format!("quote it: \"{}\"", value.to_text()));
                }
                self.log.error(node.at, entry, fault);
                None
            }
        }
    }

    /// Reads `true` or `false`. `None` if it is missing or neither.
    pub fn flag(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<bool> {
        let (_, pair) = object.find(name)?;
        let node = &pair.value;
        let entry = entry.key(name);
        match (&node.kind, self.compat) {
            (NodeKind::Scalar(Value::Bool(value)), _) => Some(*value),
            (NodeKind::Scalar(value), Compat::Agt) if coerce::flag(value).is_some() => {
                let fault = wrong_type("`true` or `false`", node);
                self.log.warning(node.at, &entry, fault);
                coerce::flag(value)
            }
            _ => {
                let fault = wrong_type("`true` or `false`", node);
                self.log.error(node.at, &entry, fault);
                None
            }
        }
    }

    /// Reads one of the texts of the field. `None` if it is missing or none of them.
    pub fn choice(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Given<&'static str>> {
        let (field, pair) = object.find(name)?;
        let FieldKind::Choice(choices) = field.kind else {
            unreachable!("`{name}` is not a choice");
        };
        let node = &pair.value;
        let entry = entry.key(name);
        let list = choices.join(", ");
        let NodeKind::Scalar(Value::Text(given)) = &node.kind else {
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
            ReasonCode::PolicyChoice,
            format!("must be one of {list}, found {}", quoted(given)),
        );
        let fault = match nearest(given, choices.iter().copied()) {
            Some(meant) => fault.fix(format!("did you mean `{meant}`?")),
            None => fault.fix("write one of them"),
        };
        self.log.error(node.at, &entry, fault);
        None
    }

    /// Reads an integer in the range of the field. `None` if it is missing or invalid. For AGT,
    /// what is positive and too small becomes the minimum.
    pub fn integer(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Given<i64>> {
        let (field, at, value) = self.whole(object, name, entry)?;
        let FieldKind::Integer { min, max } = field.kind else {
            unreachable!("`{name}` is not an integer");
        };
        let at = Some(at);
        match &value {
            Value::Int(value) if (min..=max).contains(value) => {
                return Some(Given { value: *value, at });
            }
            // What is too little for us is more than nothing: the default would be wider still.
            Value::Int(value) if (1..min).contains(value) && self.compat == Compat::Agt => {
                self.out_of_range(&Value::Int(*value), at, &entry.key(name), min, max);
                return Some(Given { value: min, at });
            }
            value => self.out_of_range(value, at, &entry.key(name), min, max),
        }
        None
    }

    fn out_of_range(
        &mut self,
        value: &Value,
        at: Option<Position>,
        entry: &KeyPath<'_>,
        min: i64,
        max: i64,
    ) {
        let fault = out_of_range(value, &min.to_string(), &max.to_string());
        self.error_unless_agt(at.unwrap_or(Position::START), entry, fault);
    }

    /// An integer of any size.
    pub fn any_integer(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Value> {
        let (_, _, value) = self.whole(object, name, entry)?;
        Some(value)
    }

    /// An integer, whatever its size.
    fn whole(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<(&'static Field, Position, Value)> {
        let (field, pair) = object.find(name)?;
        let node = &pair.value;
        let entry = entry.key(name);
        let value = match (&node.kind, self.compat) {
            (NodeKind::Scalar(value @ (Value::Int(_) | Value::Big(_))), _) => value.clone(),
            (NodeKind::Scalar(value), Compat::Agt) if coerce::integer(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("an integer", node));
                coerce::integer(value)?
            }
            _ => {
                let fault = wrong_type("an integer", node);
                self.log.error(node.at, &entry, fault);
                return None;
            }
        };
        Some((field, node.at, value))
    }

    /// Reads a number in the range of the field. `None` if it is missing or invalid. For AGT, what
    /// is positive and too small becomes the minimum.
    pub fn number(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Option<Given<f64>> {
        let (field, pair) = object.find(name)?;
        let FieldKind::Number { min, max } = field.kind else {
            unreachable!("`{name}` is not a number");
        };
        let node = &pair.value;
        let entry = entry.key(name);
        let value = match (&node.kind, self.compat) {
            (NodeKind::Scalar(Value::Float(value)), _) => *value,
            (NodeKind::Scalar(value @ (Value::Int(_) | Value::Big(_))), _) => {
                coerce::as_float(value)
            }
            (NodeKind::Scalar(value), Compat::Agt) if coerce::number(value).is_some() => {
                self.log
                    .warning(node.at, &entry, wrong_type("a number", node));
                coerce::number(value)?
            }
            _ => {
                let fault = wrong_type("a number", node);
                self.log.error(node.at, &entry, fault);
                return None;
            }
        };
        let value = match self.compat {
            // As for integers.
            Compat::Agt if value > 0.0 && value < min => {
                let fault = out_of_range(&Value::Float(value), &min.to_string(), &max.to_string());
                self.error_unless_agt(node.at, &entry, fault);
                min
            }
            _ => value,
        };
        if value >= min && value <= max {
            return Some(Given {
                value,
                at: Some(node.at),
            });
        }
        let fault = out_of_range(&Value::Float(value), &min.to_string(), &max.to_string());
        self.error_unless_agt(node.at, &entry, fault);
        None
    }

    /// A list in which every item is checked on its own. An invalid one is left out, with an error,
    /// or with a warning for AGT.
    pub fn list<T>(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
        check: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Vec<Given<T>>> {
        let (_, pair) = object.find(name)?;
        let entry = entry.key(name);
        let NodeKind::List(items) = &pair.value.kind else {
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
                Err(fault) => self.error_unless_agt(item.at, &entry, fault),
            }
        }
        Some(list)
    }

    /// Reads a list of maps. An item is `None` if it is not a map. The list is empty if the field
    /// is missing or not a list.
    pub fn objects<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Vec<Option<Object<'n>>> {
        let Some((field, pair)) = object.find(name) else {
            return Vec::new();
        };
        let FieldKind::Objects(fields) = field.kind else {
            unreachable!("`{name}` is not a list of objects");
        };
        let entry = entry.key(name);
        let NodeKind::List(items) = &pair.value.kind else {
            let fault = wrong_type("a list", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return Vec::new();
        };
        (items.iter().enumerate())
            .map(|(i, item)| self.object(item, fields, &entry.index(i)))
            .collect()
    }

    /// A map from names that people choose. Invalid names are reported.
    pub fn named<'n>(
        &mut self,
        object: &Object<'n>,
        name: &'static str,
        entry: &KeyPath<'_>,
        check: impl Fn(&str) -> Result<(), Fault>,
    ) -> Vec<(&'n str, Object<'n>)> {
        let Some((field, pair)) = object.find(name) else {
            return Vec::new();
        };
        let FieldKind::Named(fields) = field.kind else {
            unreachable!("`{name}` is not a map of names");
        };
        let entry = entry.key(name);
        let NodeKind::Map(pairs) = &pair.value.kind else {
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

    /// Reads environment variables, in the order of the file. Those with an invalid name or value
    /// are reported.
    pub fn variables(
        &mut self,
        object: &Object<'_>,
        name: &'static str,
        entry: &KeyPath<'_>,
    ) -> Vec<(String, Given<String>)> {
        let Some((_, pair)) = object.find(name) else {
            return Vec::new();
        };
        let entry = entry.key(name);
        let NodeKind::Map(pairs) = &pair.value.kind else {
            let fault = wrong_type("a map", &pair.value);
            self.log.error(pair.value.at, &entry, fault);
            return Vec::new();
        };
        let mut variables = Vec::new();
        for pair in pairs {
            let entry = entry.key(&pair.key);
            let value = self.text_of(&pair.value, &entry);
            let mut name = pair.key.chars();
            let valid = name
                .next()
                .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && name.all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !valid {
                let fault = Fault::new(
                    ReasonCode::PolicyVariable,
                    format!("{} is not a valid variable name", quoted(&pair.key)),
                )
                .fix("a name is letters, digits and `_`, and does not start with a digit");
                self.log.error(pair.at, &entry, fault);
            } else if let Some(value) = value {
                if value.contains('\0') {
                    let fault = Fault::new(ReasonCode::PolicyVariable, "contains a NUL character")
                        .fix("remove it");
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

    /// The value as it is written.
    pub fn node<'n>(&self, object: &Object<'n>, name: &'static str) -> Option<&'n Node> {
        object.find(name).map(|(_, pair)| &pair.value)
    }

    /// Reads any value. `None` if it is missing.
    pub fn any(&mut self, object: &Object<'_>, name: &'static str) -> Option<Given<Value>> {
        let (_, pair) = object.find(name)?;
        Some(Given {
            value: pair.value.to_value(),
            at: Some(pair.value.at),
        })
    }
}
