//! Lines in, lines out: for comparing decisions with those of another evaluator.

use std::sync::Arc;

use brig_python_semantics::{Map, Value};
use brig_reason::ReasonCode;
use brig_schema::{Compat, Fault, KeyPath, Node, NodeKind, Position, ProblemLog, parse_line};

use crate::document::Document;
use crate::set::PolicySet;

/// Answers one line `{"id", "policies": [...], "context": {...}}` with one line
/// `{"id", "allowed", "matched_rule", "action", "reason"}`. Policies are read as AGT reads them; a
/// line or a policy that can't be read is a denial.
pub fn eval_line(line: &str) -> String {
    let mut log = ProblemLog::new("line");
    let node = parse_line(line, &mut log);
    let id = (node.as_ref().and_then(|node| entry(node, "id"))).map_or(Value::Null, Node::to_value);
    let (allowed, rule, action, reason) = match question(node.as_ref(), log) {
        Ok((policies, context)) => {
            let answer = policies.evaluate(&context);
            (
                answer.allowed,
                answer.matched_rule,
                answer.action.name(),
                answer.reason,
            )
        }
        Err(problem) => (false, None, "deny", problem),
    };
    let mut out = String::from("{\"id\":");
    id.write_json(&mut out);
    out.push_str(if allowed {
        ",\"allowed\":true"
    } else {
        ",\"allowed\":false"
    });
    let rule = rule.map_or(Value::Null, Value::Text);
    for (key, value) in [
        ("matched_rule", rule),
        ("action", action.into()),
        ("reason", reason.into()),
    ] {
        out.push_str(",\"");
        out.push_str(key);
        out.push_str("\":");
        value.write_json(&mut out);
    }
    out.push('}');
    out
}

fn entry<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let NodeKind::Map(pairs) = &node.kind else {
        return None;
    };
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    Some(&pair.value)
}

fn question(node: Option<&Node>, mut log: ProblemLog) -> Result<(PolicySet, Map), String> {
    let policies = node.and_then(|node| entry(node, "policies"));
    let context = node
        .and_then(|node| entry(node, "context"))
        .map(Node::to_value);
    let (Some(NodeKind::List(policies)), Some(Value::Map(context))) =
        (policies.map(|node| &node.kind), context)
    else {
        if !log.failed() {
            let fault = Fault::new(
                ReasonCode::PolicyLine,
                "a line needs `policies`, a list, and `context`, a map",
            );
            log.error(Position::START, &KeyPath::Root, fault);
        }
        return Err(first_error(log.finish()));
    };
    let mut documents: Vec<Arc<Document>> = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        let log = ProblemLog::new(&format!("policies[{at}]"));
        let loaded = Document::from_tree(Some(policy), Compat::Agt, log);
        documents.push(loaded.map_err(|problems| first_error(problems.0))?.document);
    }
    Ok((PolicySet::new(documents), context))
}

fn first_error(problems: Vec<crate::Problem>) -> String {
    let errors = problems
        .iter()
        .filter(|problem| problem.severity == crate::Severity::Error);
    let first = errors.map(ToString::to_string).next();
    format!("invalid policy: {}", first.unwrap_or_default())
}
