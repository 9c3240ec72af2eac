//! The decision. Rules are put in order and prepared once; an evaluation looks at each fact once,
//! however many rules ask about it.

mod index;
mod rule;

use std::sync::Arc;

use serde::Serialize;

use crate::document::{Document, Rule, Verdict};
use crate::value::Map;

use self::index::{Index, Seen};
use self::rule::Compiled;

/// AGT's words, to the letter.
pub(crate) const NO_MATCH: &str = "No rules matched; default action applied";
pub(crate) const FAILED: &str = "Policy evaluation error \u{2014} access denied (fail closed)";

/// The answer to a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub allowed: bool,
    pub matched_rule: Option<String>,
    pub action: Verdict,
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
}

/// What decides when no rule does.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    pub action: Verdict,
    pub policy: Option<String>,
}

/// A rule by its place: the document, and the rule in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub document: usize,
    pub rule: usize,
}

/// What a rule says to a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The fact is missing, or null.
    Missing,
    NoMatch,
    Match,
    Failed(String),
}

impl Engine {
    /// The rules in the order in which they are tried.
    pub fn new(documents: Vec<Arc<Document>>, places: &[Place], fallback: Fallback) -> Self {
        let mut builder = rule::Builder::default();
        let rules = (places.iter())
            .map(|place| builder.rule(*place, &documents[place.document].rules[place.rule]))
            .collect();
        Self {
            rules,
            fields: builder.finish(),
            documents,
            fallback,
        }
    }

    pub fn rules(&self) -> impl ExactSizeIterator<Item = (&Document, &Rule)> {
        self.rules.iter().map(|compiled| self.rule(compiled))
    }

    /// Whether any rule looks at the field.
    pub fn asks_for(&self, field: &str) -> bool {
        self.fields.iter().any(|index| index.name() == field)
    }

    pub fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    fn rule(&self, compiled: &Compiled) -> (&Document, &Rule) {
        let document = &*self.documents[compiled.place.document];
        (document, &document.rules[compiled.place.rule])
    }

    pub fn evaluate(&self, context: &Map) -> Answer {
        self.evaluate_after(context, 0)
    }

    /// Without the first rules.
    pub fn evaluate_after(&self, context: &Map, first: usize) -> Answer {
        let seen = self.look(context);
        for compiled in &self.rules[first..] {
            match compiled.check(&seen[compiled.field], &self.fields[compiled.field]) {
                Finding::Missing | Finding::NoMatch => {}
                Finding::Match => {
                    let (document, rule) = self.rule(compiled);
                    return Answer {
                        allowed: rule.action.allows(),
                        matched_rule: Some(rule.name.clone()),
                        action: rule.action,
                        reason: rule.reason(),
                        policy: Some(document.name.clone()),
                        error: None,
                    };
                }
                Finding::Failed(problem) => {
                    let (document, rule) = self.rule(compiled);
                    return failed(format!(
                        "rule `{}` of policy `{}`: {problem}",
                        rule.name, document.name
                    ));
                }
            }
        }
        Answer {
            allowed: self.fallback.action.allows(),
            matched_rule: None,
            action: self.fallback.action,
            reason: NO_MATCH.into(),
            policy: self.fallback.policy.clone(),
            error: None,
        }
    }

    /// What every rule says, up to and with the first that decides.
    pub fn trace(&self, context: &Map) -> Vec<Finding> {
        let seen = self.look(context);
        let mut findings = Vec::new();
        for compiled in &self.rules {
            let finding = compiled.check(&seen[compiled.field], &self.fields[compiled.field]);
            let decides = matches!(finding, Finding::Match | Finding::Failed(_));
            findings.push(finding);
            if decides {
                break;
            }
        }
        findings
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
