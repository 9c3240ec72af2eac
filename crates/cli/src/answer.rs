//! The object that `run --json` and `session exec --json` print, whatever happened.

use serde_json::{Value, json};

use crate::args::JsonForm;
use crate::denials::{self, Denials, RunKind};
use crate::drive::Finished;
use crate::failure::{self, Failure};
use crate::policy::load;
use crate::{exit, json, units};

/// What is known of a run before it starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run<'a> {
    pub agent: Option<&'a str>,
    pub session: Option<&'a str>,
    pub backend: Option<&'a str>,
}

/// Reports what the program's output does not show. Returns the exit code.
pub(crate) fn finished(finished: &Finished, form: Option<JsonForm>, kind: RunKind<'_>) -> u8 {
    let report = &finished.report;
    let denials = Denials::of(&report.attempted);
    // Without a reader there is nobody to tell.
    if let Some(form) = form.filter(|_| !finished.unread) {
        json::print_report(report, denials.json(kind), Value::Null, form);
    }
    if finished.unread {
        return finished.exit;
    }
    let in_session = matches!(kind, RunKind::Session(_));
    let file_size = exit::explain_signal(&report.outcome, &finished.limits, in_session);
    let silent =
        finished.truncated.is_none() && report.outcome.killed.is_none() && file_size.is_none();
    if finished.within_line && !(silent && denials.are_silent()) {
        failure::end_line();
    }
    if let Some(stream) = &finished.truncated {
        let (shown, total) = (units::size(stream.shown), units::size(stream.total));
        failure::error(&format!(
            "{} was truncated after {shown} of {total}: the policy allows no more output",
            stream.name
        ));
    }
    if let Some(reason) = &report.outcome.killed {
        failure::error(&exit::explain(reason, &finished.limits, in_session));
    }
    if let Some(text) = file_size {
        failure::note(&text);
    }
    denials.show(kind);
    finished.exit
}

/// Reports that a run did not take place. Returns the exit code.
pub(crate) fn failed(run: Run<'_>, failure: &Failure, form: Option<JsonForm>) -> u8 {
    if let (Some(form), Some(lost)) = (form, failure.lost()) {
        let kind = match run.session {
            Some(_) => RunKind::Session(&lost.report.session_id),
            None => RunKind::Run,
        };
        let denials = Denials::of(&lost.report.attempted).json(kind);
        json::print_report(&lost.report, denials, failure.json(), form);
    } else if let Some(form) = form {
        let mut object = object(run, failure);
        if form == JsonForm::Stream {
            object["event"] = json!("end");
        }
        json::print(&object);
    }
    failure.show();
    failure.exit()
}

/// The object for a run that did not take place, with the same keys as for one that did. A denied one
/// has its decision.
pub(crate) fn object(run: Run<'_>, failure: &Failure) -> Value {
    if let Some(denial) = failure.denied() {
        let mut object = denial.to_json();
        object["error"] = failure.json();
        object["denials"] = denials::of_execution(denial);
        object["problems"] = load::problems();
        return object;
    }
    json!({
        "execution_id": null,
        "agent_id": run.agent,
        "session_id": run.session,
        "backend": run.backend,
        "runtime": null,
        "status": "failed",
        "decision": null,
        "result": null,
        "enforcement": [],
        "waived": [],
        "egress": [],
        "commands": [],
        "tools": [],
        "omitted": brig_audit::receipt::Omitted::default(),
        "totals": brig_audit::receipt::Totals::default(),
        "receipt": null,
        "denials": [],
        "problems": load::problems(),
        "error": failure.json(),
    })
}

#[cfg(test)]
mod tests {
    use brig_policy::Decision;
    use brig_sandbox::{BackendId, Denial, Error};

    use super::*;

    #[test]
    fn a_denial_tells_the_decision_and_exits_with_126() {
        let decision = Decision::deny("policy.rule", "not today").by_rule("no-network");
        let name = "x";
        let denial = Denial::new(
            name.parse().unwrap(),
            name.parse().unwrap(),
            name.parse().unwrap(),
            BackendId::of("native"),
            decision,
        );
        let denied = Failure::from(Error::Denied(Box::new(denial)));
        assert_eq!(denied.exit(), 126);
        let run = Run {
            agent: Some("a"),
            ..Run::default()
        };
        let object = object(run, &denied);
        assert_eq!(object["decision"]["rule"], "no-network");
        assert_eq!(object["error"]["code"], "policy.denied");
        assert_eq!(object["result"], Value::Null);

        let other = super::object(run, &Failure::usage("x"));
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
