//! The decision. Rules are sorted and compiled once; an evaluation reads each fact once, however many
//! rules test it.

mod index;
mod rule;

use std::sync::Arc;

use brig_python_semantics::Map;
use serde::Serialize;

use crate::document::{Document, Rule, Verdict};

use self::index::{Index, Seen};
use self::rule::Compiled;

/// AGT's words, to the letter.
pub(crate) const NO_MATCH: &str = "No rules matched; default action applied";
pub(crate) const FAILED: &str = "Policy evaluation error \u{2014} access denied (fail closed)";

/// The answer to a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether the execution may go on.
    pub allowed: bool,
    /// The name of the rule that decided. `None` if the default decided, or on an error.
    pub matched_rule: Option<String>,
    /// The action of the rule or of the default. `deny` on an error.
    pub action: Verdict,
    /// Why, for people to read: the message of the rule, or its name. For a default and an error,
    /// always the same words.
    pub reason: String,
    /// The name of the policy whose rule or default decided.
    pub policy: Option<String>,
    /// Why no rule could decide. The answer is a denial.
    pub error: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    documents: Vec<Arc<Document>>,
    rules: Vec<Compiled>,
    fields: Vec<Index>,
    fallback: Fallback,
    /// Of several documents: whether one of their rules needs approval.
    asks_for_approval: bool,
}

/// What decides when no rule does.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    pub action: Verdict,
    pub policy: Option<String>,
}

/// A rule: the index of its document, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleIndex {
    pub document: usize,
    pub rule: usize,
}

/// The result of one rule for a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleResult {
    /// The fact is missing, or null.
    Missing,
    NoMatch,
    Match,
    Failed(String),
}

impl Engine {
    /// The rules in the order in which they are tried.
    pub(crate) fn new(
        documents: Vec<Arc<Document>>,
        places: &[RuleIndex],
        fallback: Fallback,
    ) -> Self {
        let mut builder = rule::Builder::default();
        let mut rules: Vec<Compiled> = (places.iter())
            .map(|place| builder.rule(*place, &documents[place.document].rules[place.rule]))
            .collect();
        rule::count_alike(&mut rules);
        let asks = |place: &RuleIndex| {
            let rule = &documents[place.document].rules[place.rule];
            rule.action.needs_approval()
        };
        Self {
            asks_for_approval: documents.len() > 1
                && (fallback.action.needs_approval() || places.iter().any(asks)),
            rules,
            fields: builder.finish(),
            documents,
            fallback,
        }
    }

    pub(crate) fn rules(&self) -> impl ExactSizeIterator<Item = (&Document, &Rule)> {
        self.rules.iter().map(|compiled| self.rule(compiled))
    }

    /// Whether any rule tests the field.
    #[cfg(feature = "code-scan")]
    pub(crate) fn asks_for(&self, field: &str) -> bool {
        self.fields.iter().any(|index| index.name() == field)
    }

    pub(crate) fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    fn rule(&self, compiled: &Compiled) -> (&Document, &Rule) {
        let document = &*self.documents[compiled.place.document];
        (document, &document.rules[compiled.place.rule])
    }

    pub(crate) fn evaluate(&self, context: &Map) -> Answer {
        self.evaluate_after(context, 0)
    }

    /// Without the first rules.
    pub(crate) fn evaluate_after(&self, context: &Map, first: usize) -> Answer {
        let seen = self.look(context);
        let rules = &self.rules[first..];
        let together = self.first_match(rules, None, &seen);
        let answer = together.unwrap_or_else(|| self.fallback_answer());
        match self.asks_for_approval && answer.action.strictness() < 2 {
            true => self.each_by_itself(rules, &seen, answer),
            false => answer,
        }
    }

    /// The answers of the documents by themselves, if one of them needs approval: what one document lets pass
    /// only with approval, no other lets pass without, and an approval is not for what another one denies.
    fn each_by_itself(&self, rules: &[Compiled], seen: &[Seen<'_>], answer: Answer) -> Answer {
        let by_itself = |document: usize| self.first_match(rules, Some(document), seen);
        let own: Vec<Answer> = (0..self.documents.len()).filter_map(by_itself).collect();
        let asks = |answer: &Answer| answer.action.needs_approval();
        if !asks(&answer) && !own.iter().any(asks) {
            return answer;
        }
        let stricter = |kept: Answer, other: Answer| match other.action.strictness()
            > kept.action.strictness()
        {
            true => other,
            false => kept,
        };
        own.into_iter().fold(answer, stricter)
    }

    /// The answer of the first rule that matches: of all rules, or of those of one document.
    fn first_match(
        &self,
        rules: &[Compiled],
        document: Option<usize>,
        seen: &[Seen<'_>],
    ) -> Option<Answer> {
        let mut next = 0;
        while let Some(compiled) = rules.get(next) {
            let (seen, index) = (&seen[compiled.field], &self.fields[compiled.field]);
            if compiled.alike > 0 && seen.rules_out(compiled.search, index) {
                next += compiled.alike;
                continue;
            }
            next += 1;
            if document.is_some_and(|document| document != compiled.place.document) {
                continue;
            }
            match compiled.check(seen, index) {
                RuleResult::Missing | RuleResult::NoMatch => {}
                RuleResult::Match => {
                    let (document, rule) = self.rule(compiled);
                    return Some(Answer {
                        allowed: rule.action.allows(),
                        matched_rule: Some(rule.name.clone()),
                        action: rule.action,
                        reason: rule.reason(),
                        policy: Some(document.name.clone()),
                        error: None,
                    });
                }
                RuleResult::Failed(problem) => {
                    let (document, rule) = self.rule(compiled);
                    return Some(failed(format!(
                        "rule `{}` of policy `{}`: {problem}",
                        rule.name, document.name
                    )));
                }
            }
        }
        None
    }

    fn fallback_answer(&self) -> Answer {
        Answer {
            allowed: self.fallback.action.allows(),
            matched_rule: None,
            action: self.fallback.action,
            reason: NO_MATCH.into(),
            policy: self.fallback.policy.clone(),
            error: None,
        }
    }

    /// The result of every rule, up to the first that decides.
    pub(crate) fn trace(&self, context: &Map) -> Vec<RuleResult> {
        let seen = self.look(context);
        let mut results = Vec::new();
        for compiled in &self.rules {
            let result = compiled.check(&seen[compiled.field], &self.fields[compiled.field]);
            let decides = matches!(result, RuleResult::Match | RuleResult::Failed(_));
            results.push(result);
            if decides {
                break;
            }
        }
        results
    }

    fn look<'c>(&self, context: &'c Map) -> Vec<Seen<'c>> {
        let fields = self.fields.iter();
        fields
            .map(|field| Seen::new(context.get(field.name())))
            .collect()
    }
}

fn failed(problem: String) -> Answer {
    Answer {
        allowed: false,
        matched_rule: None,
        action: Verdict::Deny,
        reason: FAILED.into(),
        policy: None,
        error: Some(problem),
    }
}
