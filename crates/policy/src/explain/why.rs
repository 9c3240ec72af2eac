//! One sentence for each rule.

use brig_python_semantics::{Map, Value};

use crate::document::{Condition, Operator};
use crate::engine::RuleResult;
use brig_schema::quoted;

pub(super) fn why(condition: &Condition, result: Option<&RuleResult>, context: &Map) -> String {
    let field = format!("`{}`", condition.field);
    let matched = match result {
        None => return "a rule before it decided".into(),
        Some(RuleResult::Failed(problem)) => return problem.clone(),
        Some(RuleResult::Missing) => {
            let null = context.contains_key(&condition.field);
            return if null {
                format!("{field} is null, which matches nothing")
            } else {
                format!("{field} is not in the context")
            };
        }
        Some(RuleResult::Match) => true,
        Some(RuleResult::NoMatch) => false,
    };
    let given = context.get(&condition.field).map(shown).unwrap_or_default();
    let wanted = shown(&condition.value);
    let verb = |yes: &'static str, no: &'static str| if matched { yes } else { no };
    match condition.operator {
        Operator::Contains => format!("{field} {} {wanted}", verb("contains", "does not contain")),
        Operator::Matches => {
            let pattern = quoted(&condition.value.to_text());
            format!("{field} {} {pattern}", verb("matches", "does not match"))
        }
        Operator::Eq => format!(
            "{field} is {given}{}",
            if matched {
                String::new()
            } else {
                format!(", not {wanted}")
            }
        ),
        Operator::Ne => format!(
            "{field} is {given}{}",
            if matched {
                format!(", not {wanted}")
            } else {
                String::new()
            }
        ),
        Operator::In => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("in", "not in")
        ),
        Operator::NotIn => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("not in", "in")
        ),
        Operator::Gt => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("more than", "not more than")
        ),
        Operator::Lt => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("less than", "not less than")
        ),
        Operator::Gte => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("at least", "less than")
        ),
        Operator::Lte => format!(
            "{field} is {given}, which is {} {wanted}",
            verb("at most", "more than")
        ),
    }
}

/// A value in a sentence.
pub(super) fn shown(value: &Value) -> String {
    quoted(&value.to_text())
}
