//! One rule, ready to be asked.

use std::collections::HashMap;
use std::sync::Arc;

use brig_python_semantics::{Order, Pattern, Value};

use super::index::{Index, Search, Seen};
use super::{RuleIndex, RuleResult};
use crate::document::{Operator, Rule};

#[derive(Debug)]
pub(super) struct Compiled {
    pub place: RuleIndex,
    pub field: usize,
    pub search: Search,
    /// How many rules from this one on have the same field and search. What rules out all of a search is found
    /// once for all of them.
    pub alike: usize,
    test: Test,
}

pub(super) fn count_alike(rules: &mut [Compiled]) {
    let (mut next, mut alike) = (None, 0);
    for rule in rules.iter_mut().rev() {
        let this = Some((rule.field, rule.search));
        alike = match rule.search {
            Search::Nothing => 0,
            _ if this == next => alike + 1,
            _ => 1,
        };
        next = this;
        rule.alike = alike;
    }
}

#[derive(Debug)]
enum Test {
    Equals(Value),
    Differs(Value),
    Ordered(Order, Value),
    In(Value),
    NotIn(Value),
    /// Text that is searched for in text, together with all others.
    ContainsText {
        needle: usize,
        value: Value,
    },
    Contains(Value),
    Matches {
        pattern: Arc<Pattern>,
        gate: Gate,
    },
    /// The pattern is invalid.
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
    pub(super) fn finish(self) -> Vec<Index> {
        self.fields
    }

    pub(super) fn rule(&mut self, place: RuleIndex, rule: &Rule) -> Compiled {
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
        let search = match &test {
            Test::ContainsText { .. } => Search::Needle,
            Test::Matches { gate, .. } => match gate {
                Gate::OneOf(_) => Search::Needle,
                Gate::Loose(_) => Search::Loose,
            },
            _ => Search::Nothing,
        };
        Compiled {
            place,
            field,
            search,
            alike: 0,
            test,
        }
    }
}

impl Compiled {
    #[inline]
    pub(super) fn check(&self, seen: &Seen<'_>, index: &Index) -> RuleResult {
        let Some(given) = seen.value else {
            return RuleResult::Missing;
        };
        let matched = match &self.test {
            Test::ContainsText { needle, value } => match given {
                Value::Text(text) => match seen.has_needle(index, *needle) {
                    Some(found) => Ok(found),
                    None => Ok(value.as_text().is_some_and(|part| text.contains(part))),
                },
                given => given.contains(value),
            },
            Test::Contains(value) => given.contains(value),
            Test::Equals(value) => Ok(given.equals(value)),
            Test::Differs(value) => Ok(!given.equals(value)),
            Test::Ordered(order, value) => given.in_order(*order, value),
            Test::In(value) => value.contains(given),
            Test::NotIn(value) => value.contains(given).map(|found| !found),
            Test::Matches { pattern, gate } => {
                let closed = match gate {
                    Gate::OneOf(needles) => (needles.iter())
                        .all(|needle| seen.has_needle(index, *needle) == Some(false)),
                    Gate::Loose(place) => seen.lacks(index, *place),
                };
                if closed {
                    return RuleResult::NoMatch;
                }
                return match pattern.is_match(seen.text()) {
                    Ok(true) => RuleResult::Match,
                    Ok(false) => RuleResult::NoMatch,
                    Err(problem) => RuleResult::Failed(problem.to_string()),
                };
            }
            Test::Broken(problem) => return RuleResult::Failed(format!("bad pattern: {problem}")),
        };
        match matched {
            Ok(true) => RuleResult::Match,
            Ok(false) => RuleResult::NoMatch,
            Err(problem) => RuleResult::Failed(problem.to_string()),
        }
    }
}
