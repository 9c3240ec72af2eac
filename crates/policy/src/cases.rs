//! Test cases of a policy.

use brig_python_semantics::{Map, Value};
use brig_reason::ReasonCode;
use brig_schema::{
    Compat, Fault, Field, FieldKind, Format, KeyPath, Position, ProblemLog, Problems, Reader, parse,
};
use serde::Serialize;

use crate::engine::Answer;
use crate::set::PolicySet;

const FILE: &[Field] = &[Field::new("cases", FieldKind::Objects(CASE), "The cases.").required()];

const CASE: &[Field] = &[
    Field::new("name", FieldKind::Name, "What the case tests."),
    Field::new("context", FieldKind::Any, "The facts.").required(),
    Field::new(
        "expect",
        FieldKind::Any,
        "`allow`, `deny`, `require_approval`, or what the answer must contain.",
    )
    .required(),
];

const EXPECTATIONS: [&str; 4] = ["allowed", "rule", "action", "reason"];

/// Cases that were read and checked.
#[derive(Clone, Debug)]
pub struct Cases(Vec<Case>);

#[derive(Clone, Debug)]
struct Case {
    name: String,
    at: Position,
    context: Map,
    expect: Map,
}

/// What came of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// The name that the file gives the case; without one, `case` and its number, from 1.
    pub name: String,
    /// Where the case begins in its file.
    #[serde(flatten)]
    pub at: Position,
    /// What the policies answered.
    pub answer: Answer,
    /// What differs from the expectation. Empty if the case passes.
    pub differences: Vec<String>,
}

impl Cases {
    /// Reads the cases of a file: JSON if its name ends in `.json`, otherwise YAML. The error holds
    /// every problem that was found.
    pub fn load(file: &str, text: impl AsRef<[u8]>) -> Result<Self, Problems> {
        let mut log = ProblemLog::new(file);
        let node = parse(text.as_ref(), Format::of(file), Compat::Strict, &mut log);
        let mut cases = Vec::new();
        if let Some(node) = node {
            let mut reader = Reader::new(&mut log, Compat::Strict);
            let root = KeyPath::Root;
            if let Some(object) = reader.object(&node, FILE, &root) {
                let list = root.key("cases");
                for (at, object) in reader
                    .objects(&object, "cases", &root)
                    .into_iter()
                    .enumerate()
                {
                    let Some(object) = object else { continue };
                    let entry = list.index(at);
                    let name = reader.text(&object, "name", &entry);
                    let context = reader.any(&object, "context");
                    let expect = reader.any(&object, "expect");
                    let context = context.and_then(|given| facts(given.value));
                    let expect = expect.and_then(|given| expectation(given.value));
                    let mut check = |found: bool, name: &str, fault: Fault| {
                        if !found && object.has(name) {
                            reader.log.error(object.at, &entry.key(name), fault);
                        }
                    };
                    check(
                        context.is_some(),
                        "context",
                        Fault::new(ReasonCode::PolicyCase, "must be a map of facts")
                            .fix("write it as `{code: \"print(1)\"}`"),
                    );
                    let fault = Fault::new(
                        ReasonCode::PolicyCase,
                        "must be `allow`, `deny`, `require_approval`, or a map of allowed, rule, action, reason",
                    )
                    .fix("write it as `deny`, or as `{allowed: false, rule: …}`");
                    check(expect.is_some(), "expect", fault);
                    if let (Some(context), Some(expect)) = (context, expect) {
                        cases.push(Case {
                            name: name
                                .map_or_else(|| format!("case {}", at + 1), |name| name.value),
                            at: object.at,
                            context,
                            expect,
                        });
                    }
                }
            }
        }
        if log.failed() {
            return Err(Problems(log.finish()));
        }
        Ok(Self(cases))
    }

    /// Evaluates the context of every case. One result for each case, in the order of the file.
    pub fn run(&self, policies: &PolicySet) -> Vec<CaseResult> {
        let results = self.0.iter().map(|case| {
            let answer = policies.evaluate(&case.context);
            CaseResult {
                name: case.name.clone(),
                at: case.at,
                differences: differences(&case.expect, &answer),
                answer,
            }
        });
        results.collect()
    }
}

/// Reads the facts of a context from a file.
pub fn load_facts(file: &str, text: impl AsRef<[u8]>) -> Result<Map, Problems> {
    let mut log = ProblemLog::new(file);
    let node = parse(text.as_ref(), Format::of(file), Compat::Strict, &mut log);
    if let Some(node) = node {
        match node.to_value() {
            Value::Map(facts) if !log.failed() => return Ok(facts),
            Value::Map(_) => {}
            _ => log.error(
                node.at,
                &KeyPath::Root,
                Fault::new(
                    ReasonCode::PolicyContext,
                    "a context must be a map of facts",
                )
                .fix("write it as `{\"code\": \"print(1)\"}`"),
            ),
        }
    }
    Err(Problems(log.finish()))
}

fn facts(value: Value) -> Option<Map> {
    match value {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

fn expectation(value: Value) -> Option<Map> {
    match value {
        Value::Text(text) if text == "allow" || text == "deny" => {
            Some([("allowed", text == "allow")].into_iter().collect())
        }
        Value::Text(text) if text == "require_approval" => {
            Some([("action", text)].into_iter().collect())
        }
        Value::Map(map) if map.iter().all(|(key, _)| EXPECTATIONS.contains(&key)) => Some(map),
        _ => None,
    }
}

fn differences(expect: &Map, answer: &Answer) -> Vec<String> {
    let rule = (answer.matched_rule.as_deref()).map_or(Value::Null, Value::from);
    let given = [
        ("allowed", Value::Bool(answer.allowed)),
        ("rule", rule),
        ("action", answer.action.name().into()),
        ("reason", answer.reason.as_str().into()),
    ];
    (given.iter())
        .filter_map(|(key, given)| {
            let wanted = expect.get(key)?;
            (!wanted.equals(given))
                .then(|| format!("`{key}` is {}, expected {}", given.repr(), wanted.repr()))
        })
        .collect()
}
