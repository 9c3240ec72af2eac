//! Why the answer is what it is, and what would change it.

mod flip;
pub(crate) mod sample;
mod why;

use std::sync::Arc;

use brig_python_semantics::{Map, Value};
use brig_schema::{Given, Position};
use serde::{Serialize, Serializer};

use crate::document::{Document, Priority, Verdict};
use crate::engine::{Answer, RuleResult};
use crate::set::PolicySet;

pub use flip::Flip;

/// An answer, with all that led to it.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The same answer as from [`PolicySet::evaluate`].
    pub answer: Answer,
    /// In the order in which they are tried.
    pub considered: Vec<Considered>,
    /// The limits and defaults that apply. They do not depend on the context.
    pub effective: Vec<Effective>,
    /// Small changes that would turn the answer around; none is known for every answer.
    pub flips: Vec<Flip>,
    /// The digest of the set of policies, as records show it.
    pub digest: String,
}

/// One rule, and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Considered {
    /// The name of the rule.
    pub rule: String,
    /// The name of the policy that has the rule.
    pub policy: String,
    /// Where the rule begins.
    pub position: Origin,
    /// The answer that the rule gives when it matches.
    pub action: Verdict,
    /// The rules are tried by priority, the highest first.
    pub priority: Priority,
    /// What came of the rule for this context.
    pub outcome: Outcome,
    /// Why, as a sentence for people to read.
    pub why: String,
}

/// What came of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The condition is met: the rule decided.
    Match,
    /// The condition is not met: the next rule was tried.
    NoMatch,
    /// The fact is missing.
    Missing,
    /// The condition could not be answered, and so denies.
    Failed,
    /// A rule before it decided.
    NotReached,
}

impl Outcome {
    /// For people to read, such as `not reached`.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Match => "match",
            Outcome::NoMatch => "no match",
            Outcome::Missing => "missing",
            Outcome::Failed => "failed",
            Outcome::NotReached => "not reached",
        }
    }
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The name of the file, as it was given when it was read.
    pub file: Arc<str>,
    /// Where in the file.
    #[serde(flatten)]
    pub at: Position,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.at.line)
    }
}

/// An effective value, and where it was set; nowhere if it is the default.
#[derive(Clone, Debug, Serialize)]
pub struct Effective {
    /// The field of the policy, such as `max_memory_mb`.
    pub name: &'static str,
    /// Null if no policy sets it.
    pub value: Value,
    /// Where it was set. `None` if the value is a default, or there is none.
    pub from: Option<Origin>,
    /// Whether Brig enforces it. Limits of the model are for the caller to enforce.
    pub enforced: bool,
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl PolicySet {
    /// Evaluates a context. Says why each rule matched or did not, and what would change the
    /// answer.
    pub fn explain(&self, context: &Map) -> Explanation {
        let answer = self.evaluate(context);
        let results = self.engine().trace(context);
        let considered = self
            .engine()
            .rules()
            .enumerate()
            .map(|(at, (document, rule))| {
                // With an approval among several policies, a rule after the first match may decide.
                let decides = answer.matched_rule.as_ref() == Some(&rule.name)
                    && answer.policy.as_ref() == Some(&document.name)
                    && answer.action == rule.action;
                let by_itself = (decides && at >= results.len()).then_some(&RuleResult::Match);
                let result = results.get(at).or(by_itself);
                Considered {
                    rule: rule.name.clone(),
                    policy: document.name.clone(),
                    position: Origin {
                        file: document.file.clone(),
                        at: rule.at,
                    },
                    action: rule.action,
                    priority: rule.priority.clone(),
                    outcome: match result {
                        None => Outcome::NotReached,
                        Some(RuleResult::Missing) => Outcome::Missing,
                        Some(RuleResult::NoMatch) => Outcome::NoMatch,
                        Some(RuleResult::Match) => Outcome::Match,
                        Some(RuleResult::Failed(_)) => Outcome::Failed,
                    },
                    why: why::why(&rule.condition, result, context),
                }
            });
        Explanation {
            considered: considered.collect(),
            effective: self.effective(),
            flips: flip::flips(self, context),
            digest: self.digest().to_string(),
            answer,
        }
    }

    /// Every effective limit and default. Of several documents, the strictest limit applies.
    pub fn effective(&self) -> Vec<Effective> {
        let documents = self.documents();
        let first = documents.first();
        let deciding = match self.directory() {
            None => first,
            Some(_) => documents.last(),
        };
        let mut all = vec![Effective {
            name: "action",
            value: self.engine().fallback().action.name().into(),
            from: deciding.and_then(|document| origin(document, document.defaults.action.at)),
            enforced: true,
        }];
        let network = (documents.iter())
            .find(|document| document.defaults.network.value == Verdict::Deny)
            .or(first);
        all.push(Effective {
            name: "network_default",
            value: network
                .map_or(Verdict::Deny, |document| document.defaults.network.value)
                .name()
                .into(),
            from: network.and_then(|document| origin(document, document.defaults.network.at)),
            enforced: true,
        });
        macro_rules! strictest {
            ($($name:ident),*) => {$(
                let given = documents.iter().filter_map(|document| {
                    let given = document.limits.$name.as_ref()?;
                    Some((document, given))
                });
                all.push(strictest(stringify!($name), given));
            )*};
        }
        strictest!(
            max_cpu,
            max_memory_mb,
            timeout_seconds,
            max_processes,
            max_disk_mb,
            max_output_bytes
        );
        let tokens = documents.iter().map(|d| (d, &d.defaults.max_tokens));
        let calls = documents.iter().map(|d| (d, &d.defaults.max_tool_calls));
        for effective in [
            strictest("max_tokens", tokens),
            strictest("max_tool_calls", calls),
        ] {
            all.push(Effective {
                enforced: false,
                ..effective
            });
        }
        let approval = documents
            .iter()
            .map(|d| (d, &d.defaults.approval_timeout_seconds));
        all.push(strictest("approval_timeout_seconds", approval));
        let confidence = (documents.iter())
            .map(|document| (document, &document.defaults.confidence_threshold))
            .reduce(|a, b| if b.1.value > a.1.value { b } else { a });
        all.push(Effective {
            name: "confidence_threshold",
            value: confidence.map_or(Value::Null, |(_, given)| given.value.into()),
            from: confidence.and_then(|(document, given)| origin(document, given.at)),
            enforced: false,
        });
        all
    }
}

fn origin(document: &Document, at: Option<Position>) -> Option<Origin> {
    Some(Origin {
        file: document.file.clone(),
        at: at?,
    })
}

fn strictest<'d, T: PartialOrd + Copy + ToValue + 'd>(
    name: &'static str,
    given: impl Iterator<Item = (&'d Arc<Document>, &'d Given<T>)>,
) -> Effective {
    let strictest = given.reduce(|a, b| if b.1.value < a.1.value { b } else { a });
    Effective {
        name,
        value: strictest.map_or(Value::Null, |(_, given)| given.value.to_value()),
        from: strictest.and_then(|(document, given)| origin(document, given.at)),
        enforced: true,
    }
}

trait ToValue {
    fn to_value(self) -> Value;
}

impl ToValue for f64 {
    fn to_value(self) -> Value {
        Value::Float(self)
    }
}

impl ToValue for i64 {
    fn to_value(self) -> Value {
        Value::Int(self)
    }
}

impl ToValue for u64 {
    fn to_value(self) -> Value {
        i64::try_from(self).map_or(Value::Null, Value::Int)
    }
}
