//! The smallest changes that would turn an answer around: one fact, or one line of the policy.

use brig_python_semantics::{Map, Value};
use serde::Serialize;

use super::sample;
use super::why::shown;
use crate::document::{Condition, Operator, Rule};
use crate::engine::{Answer, RuleResult};
use crate::set::PolicySet;

/// A small change that would turn an answer around.
#[derive(Clone, Debug, Serialize)]
pub struct Flip {
    /// What would have to be different, as the end of a sentence that begins with the answer.
    pub change: String,
    /// The answer after the change.
    pub answer: Answer,
}

const MOST: usize = 3;
/// The most rules that are tried for the opposite answer.
const MOST_TRIED: usize = 200;

pub(super) fn flips(set: &PolicySet, context: &Map) -> Vec<Flip> {
    let engine = set.engine();
    let now = engine.evaluate(context);
    let mut search = Search {
        set,
        context,
        allowed: now.allowed,
        found: Vec::new(),
    };
    let results = engine.trace(context);
    let rules: Vec<(&str, &Rule)> = (engine.rules())
        .map(|(document, rule)| (document.file(), rule))
        .collect();
    let decided = matches!(
        results.last(),
        Some(RuleResult::Match | RuleResult::Failed(_))
    );
    if decided && let Some((file, rule)) = rules.get(results.len() - 1) {
        search.without(&rule.condition);
        search.without_rule(file, rule, results.len() - 1, &now);
    } else if search.found.is_empty() {
        search.other_default(&now);
    }
    let opposite = |rule: &&(&str, &Rule)| rule.1.action.allows() != now.allowed;
    for (_, rule) in rules.iter().filter(opposite).take(MOST_TRIED) {
        if search.found.len() >= MOST {
            break;
        }
        search.with(&rule.condition);
    }
    search.found.truncate(MOST);
    search.found
}

struct Search<'s> {
    set: &'s PolicySet,
    context: &'s Map,
    allowed: bool,
    found: Vec<Flip>,
}

impl Search<'_> {
    /// Keeps the change if it turns the answer around.
    fn attempt(&mut self, context: &Map, change: String) -> bool {
        let answer = self.set.evaluate(context);
        let turned = answer.allowed != self.allowed && answer.error.is_none();
        if turned && !self.found.iter().any(|flip| flip.change == change) {
            self.found.push(Flip { change, answer });
        }
        turned
    }

    /// As if the condition did not match.
    fn without(&mut self, condition: &Condition) {
        let field = &condition.field;
        let Some(given) = self.context.get(field) else {
            return;
        };
        if let Some(value) = sample::avoiding(condition, given) {
            let change = match condition.operator {
                Operator::Contains => {
                    format!("if `{field}` did not contain {}", shown(&condition.value))
                }
                _ => format!("if `{field}` were {}", shown(&value)),
            };
            let mut context = self.context.clone();
            context.insert(field.as_str(), value);
            if self.attempt(&context, change) {
                return;
            }
        }
        let mut context = self.context.clone();
        context.remove(field);
        let change = match condition.operator {
            Operator::Matches => {
                format!("if `{field}` did not match {}", shown(&condition.value))
            }
            Operator::Eq => format!("if `{field}` were not {}", shown(given)),
            _ => format!("if `{field}` were not there"),
        };
        self.attempt(&context, change);
    }

    /// As if the rule were not in the policy.
    fn without_rule(&mut self, file: &str, rule: &Rule, at: usize, now: &Answer) {
        let answer = self.set.engine().evaluate_after(self.context, at + 1);
        if answer.allowed != now.allowed && answer.error.is_none() {
            let change = format!(
                "if rule `{}` ({file}:{}) were not in the policy",
                rule.name, rule.at.line
            );
            self.found.push(Flip { change, answer });
        }
    }

    fn other_default(&mut self, now: &Answer) {
        let action = if now.allowed { "deny" } else { "allow" };
        let mut answer = now.clone();
        answer.allowed = !now.allowed;
        answer.action = match now.allowed {
            true => crate::Verdict::Deny,
            false => crate::Verdict::Allow,
        };
        let change = match &now.policy {
            Some(policy) => format!("if policy `{policy}` said `defaults.action: {action}`"),
            None => format!("if a policy said `defaults.action: {action}`"),
        };
        self.found.push(Flip { change, answer });
    }

    /// As if the condition matched.
    fn with(&mut self, condition: &Condition) {
        let Some(value) = sample::satisfying(condition) else {
            return;
        };
        let field = &condition.field;
        let (value, change) = match (condition.operator, self.context.get(field), &value) {
            (Operator::Contains, Some(Value::Text(text)), Value::Text(part)) => (
                format!("{text}{part}").into(),
                format!("if `{field}` contained {}", shown(&value)),
            ),
            (Operator::Ne | Operator::NotIn, ..) => return,
            _ => {
                let change = format!("if `{field}` were {}", shown(&value));
                (value, change)
            }
        };
        let mut context = self.context.clone();
        context.insert(field.as_str(), value);
        self.attempt(&context, change);
    }
}
