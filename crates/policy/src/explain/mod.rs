//! Why the answer is what it is, and what would change it.

mod flip;
pub(crate) mod sample;
mod why;

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::document::{Document, Given, Verdict};
use crate::engine::{Answer, Finding};
use crate::problem::{Position, as_text};
use crate::set::PolicySet;
use crate::value::{Map, Value};

pub use flip::Flip;

#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub answer: Answer,
    /// In the order in which they are tried.
    pub considered: Vec<Considered>,
    pub effective: Vec<Effective>,
    /// Small changes that would turn the answer around; none is known for every answer.
    pub flips: Vec<Flip>,
    pub digest: String,
}

/// One rule, and what it said.
#[derive(Clone, Debug, Serialize)]
pub struct Considered {
    pub rule: String,
    pub policy: String,
    pub place: Origin,
    pub action: Verdict,
    pub priority: i64,
    pub outcome: Outcome,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Match,
    NoMatch,
    /// The fact is missing.
    Missing,
    /// The condition could not be answered, and so denies.
    Failed,
    /// A rule before it decided.
    NotReached,
}

impl Outcome {
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

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    #[serde(flatten)]
    pub at: Position,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.at.line)
    }
}

/// A value that holds, and where it was given; nowhere if it is the default.
#[derive(Clone, Debug, Serialize)]
pub struct Effective {
    pub name: &'static str,
    /// Null if no policy says anything.
    pub value: Value,
    pub from: Option<Origin>,
    /// Whether Brig holds it. What is about the model that asks is for the caller to hold.
    pub held: bool,
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl PolicySet {
    pub fn explain(&self, context: &Map) -> Explanation {
        let findings = self.engine().trace(context);
        let considered = self
            .engine()
            .rules()
            .enumerate()
            .map(|(at, (document, rule))| {
                let finding = findings.get(at);
                Considered {
                    rule: rule.name.clone(),
                    policy: document.name.clone(),
                    place: Origin {
                        file: document.file.clone(),
                        at: rule.at,
                    },
                    action: rule.action,
                    priority: rule.priority,
                    outcome: match finding {
                        None => Outcome::NotReached,
                        Some(Finding::Missing) => Outcome::Missing,
                        Some(Finding::NoMatch) => Outcome::NoMatch,
                        Some(Finding::Match) => Outcome::Match,
                        Some(Finding::Failed(_)) => Outcome::Failed,
                    },
                    why: why::why(&rule.condition, finding, context),
                }
            });
        Explanation {
            answer: self.evaluate(context),
            considered: considered.collect(),
            effective: self.effective(),
            flips: flip::flips(self, context),
            digest: self.digest().to_string(),
        }
    }

    /// Every limit and default that holds. Of several documents, the strictest limit does.
    pub fn effective(&self) -> Vec<Effective> {
        let documents = self.documents();
        let first = documents.first();
        let deciding = match self.folder() {
            None => first,
            Some(_) => documents.last(),
        };
        let mut all = vec![Effective {
            name: "action",
            value: self.engine().fallback().action.name().into(),
            from: deciding.and_then(|document| origin(document, document.defaults.action.at)),
            held: true,
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
            held: true,
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
                held: false,
                ..effective
            });
        }
        let confidence = (documents.iter())
            .map(|document| (document, &document.defaults.confidence_threshold))
            .reduce(|a, b| if b.1.value > a.1.value { b } else { a });
        all.push(Effective {
            name: "confidence_threshold",
            value: confidence.map_or(Value::Null, |(_, given)| given.value.into()),
            from: confidence.and_then(|(document, given)| origin(document, given.at)),
            held: false,
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
        held: true,
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
