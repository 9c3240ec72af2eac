//! The object that `run --json` and `session exec --json` print, whatever happened.

use brig_sandbox::Report;
use serde_json::{Value, json};

use crate::failure::Failure;

/// An execution that took place.
pub fn success(report: &Report) -> Value {
    let mut object = report.to_json();
    object["error"] = Value::Null;
    object
}

/// An execution that did not, with the same keys. A denied one has its decision.
pub fn failure(
    agent: Option<&str>,
    session: Option<&str>,
    backend: Option<&str>,
    failure: &Failure,
) -> Value {
    if let Some(report) = failure.denied() {
        let mut object = report.to_json();
        object["error"] = failure.json();
        return object;
    }
    json!({
        "execution_id": null,
        "agent_id": agent,
        "session_id": session,
        "backend": backend,
        "status": "failed",
        "decision": null,
        "result": null,
        "enforcement": [],
        "waived": [],
        "egress": [],
        "commands": [],
        "tools": [],
        "omitted": brig_audit::receipt::Omitted::default(),
        "error": failure.json(),
    })
}

#[cfg(test)]
mod tests {
    use brig_policy::Decision;
    use brig_sandbox::{Error, ExecutionStatus};

    use super::*;

    #[test]
    fn a_denial_tells_the_decision_and_exits_with_126() {
        let report = Report {
            execution_id: "e".parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            session_id: "s".parse().unwrap(),
            backend: "native",
            status: ExecutionStatus::Failed,
            decision: Decision {
                allowed: false,
                code: "policy.rule".into(),
                rule: Some("no-network".into()),
                reason: "not today".into(),
            },
            outcome: None,
            enforcement: Vec::new(),
            waived: Vec::new(),
            attempted: brig_sandbox::Attempted::default(),
        };
        let denied = Failure::from(Error::Denied(Box::new(report)));
        assert_eq!(denied.exit(), 126);
        let object = failure(Some("a"), None, None, &denied);
        assert_eq!(object["decision"]["rule"], "no-network");
        assert_eq!(object["error"]["code"], "policy.denied");
        assert_eq!(object["result"], Value::Null);

        let other = failure(Some("a"), None, None, &Failure::usage("x"));
        let keys = |object: &Value| {
            object
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&object), keys(&other));
    }
}
