//! One rule, ready to be asked.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::{Index, Seen};
use super::{Finding, Place};
use crate::document::{Operator, Rule};
use crate::pattern::Pattern;
use crate::value::{Order, Value};

#[derive(Debug)]
pub(super) struct Compiled {
    pub place: Place,
    pub field: usize,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Equals(Value),
    Differs(Value),
    Ordered(Order, Value),
    In(Value),
    NotIn(Value),
    /// Text that is looked for in text together with all others.
    ContainsText {
        needle: usize,
        value: Value,
    },
    Contains(Value),
    Matches {
        pattern: Arc<Pattern>,
        gate: Gate,
    },
    /// The pattern is none.
    Broken(String),
}

/// What must be there before a pattern is worth a try.
#[derive(Debug)]
enum Gate {
    OneOf(Vec<usize>),
    Loose(usize),
}

#[derive(Debug, Default)]
pub(super) struct Builder {
    fields: Vec<Index>,
    places: HashMap<String, usize>,
}

impl Builder {
    pub fn finish(self) -> Vec<Index> {
        self.fields
    }

    pub fn rule(&mut self, place: Place, rule: &Rule) -> Compiled {
        let condition = &rule.condition;
        let field = match self.places.get(&condition.field) {
            Some(field) => *field,
            None => {
                let field = self.fields.len();
                self.fields.push(Index::new(&condition.field));
                self.places.insert(condition.field.clone(), field);
                field
            }
        };
        let index = &mut self.fields[field];
        let value = condition.value.clone();
        let test = match condition.operator {
            Operator::Eq => Test::Equals(value),
            Operator::Ne => Test::Differs(value),
            Operator::Gt => Test::Ordered(Order::Greater, value),
            Operator::Lt => Test::Ordered(Order::Less, value),
            Operator::Gte => Test::Ordered(Order::GreaterOrEqual, value),
            Operator::Lte => Test::Ordered(Order::LessOrEqual, value),
            Operator::In => Test::In(value),
            Operator::NotIn => Test::NotIn(value),
            Operator::Contains => match &value {
                Value::Text(text) if !text.is_empty() => Test::ContainsText {
                    needle: index.needle(text),
                    value,
                },
                _ => Test::Contains(value),
            },
            Operator::Matches => match &condition.pattern {
                Some(Ok(pattern)) => Test::Matches {
                    pattern: pattern.clone(),
                    gate: match pattern.required() {
                        Some(texts) => {
                            Gate::OneOf(texts.iter().map(|text| index.needle(text)).collect())
                        }
                        None => Gate::Loose(index.loose(pattern)),
                    },
                },
                Some(Err(problem)) => Test::Broken(problem.clone()),
                None => Test::Broken("no pattern".into()),
            },
        };
        Compiled { place, field, test }
    }
}

impl Compiled {
    #[inline]
    pub fn check(&self, seen: &Seen<'_>, index: &Index) -> Finding {
        let Some(given) = seen.value else {
            return Finding::Missing;
        };
        let matched = match &self.test {
            Test::ContainsText { needle, value } => match given {
                Value::Text(text) => match seen.has_needle(index, *needle) {
                    Some(found) => Ok(found),
                    None => Ok(value.as_text().is_some_and(|part| text.contains(part))),
                },
                given => given.holds(value),
            },
            Test::Contains(value) => given.holds(value),
            Test::Equals(value) => Ok(given.equals(value)),
            Test::Differs(value) => Ok(!given.equals(value)),
            Test::Ordered(order, value) => given.in_order(*order, value),
            Test::In(value) => value.holds(given),
            Test::NotIn(value) => value.holds(given).map(|found| !found),
            Test::Matches { pattern, gate } => {
                let closed = match gate {
                    Gate::OneOf(needles) => (needles.iter())
                        .all(|needle| seen.has_needle(index, *needle) == Some(false)),
                    Gate::Loose(place) => seen.lacks(index, *place),
                };
                if closed {
                    return Finding::NoMatch;
                }
                return match pattern.is_match(seen.text()) {
                    Ok(true) => Finding::Match,
                    Ok(false) => Finding::NoMatch,
                    Err(problem) => Finding::Failed(problem.to_string()),
                };
            }
            Test::Broken(problem) => return Finding::Failed(format!("bad pattern: {problem}")),
        };
        match matched {
            Ok(true) => Finding::Match,
            Ok(false) => Finding::NoMatch,
            Err(problem) => Finding::Failed(problem.to_string()),
        }
    }
}
