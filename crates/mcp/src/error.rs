//! Why a call was not carried out, in a form that a program can use.

use brig_audit::ApprovalOutcome;
use brig_reason::ReasonCode;
use brig_sandbox::Error;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject};
use serde_json::{Value, json};

use crate::text;

/// A call that ran nothing.
#[derive(Debug)]
pub(crate) struct ToolError {
    pub code: String,
    pub message: String,
    pub rule: Option<Box<str>>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What the operator could change. The model can't.
    pub would_allow: Option<Box<str>>,
    pub recorded: Option<Box<Recorded>>,
    /// In place of the usual advice to the model.
    pub advice: Option<&'static str>,
}

/// Where an execution is in the audit log.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub execution: String,
    /// The digest of its receipt.
    pub receipt: Option<String>,
}

impl Recorded {
    pub(crate) fn meta(&self) -> MetaObject {
        MetaObject(JsonObject::from_iter([
            (
                "io.brig/execution".to_owned(),
                self.execution.as_str().into(),
            ),
            ("io.brig/receipt".to_owned(), self.receipt.as_deref().into()),
        ]))
    }
}

impl ToolError {
    pub(crate) fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self {
            code: code.code().to_owned(),
            message: message.into(),
            rule: None,
            retryable: false,
            would_allow: None,
            recorded: None,
            advice: None,
        }
    }

    /// Of a call that was cancelled before anything ran.
    pub(crate) fn cancelled() -> Self {
        Self::new(
            ReasonCode::RunCancelled,
            "the call was cancelled before it began",
        )
        .retryable()
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// `operator`: where the operator would change the policy.
    pub(crate) fn of(error: &Error, operator: Option<&str>) -> Self {
        let mut own = Self::new(error.reason(), error.to_string());
        match error {
            Error::Denied(denial) => {
                let rule = denial.rule();
                let what = rule.map_or("the policy".into(), |rule| format!("rule `{rule}`"));
                let place = operator.map_or(String::new(), |place| format!("; {place}"));
                own.code = denial.code().to_owned();
                own.would_allow = Some(format!("for the operator: change {what}{place}").into());
                if let Some(approval) = denial.approval() {
                    own.would_allow = Some(
                        "for the operator: approve it with `brig approvals` while it waits".into(),
                    );
                    own.advice = Some(advice(approval.outcome));
                }
                own.recorded = Some(Box::new(Recorded {
                    execution: denial.execution_id().to_string(),
                    receipt: denial.receipt().map(str::to_owned),
                }));
                own.rule = rule.map(Into::into);
            }
            Error::SessionBusy { .. } | Error::InstanceLost(_) => own.retryable = true,
            // What took place and could not be saved or recorded would take place again.
            Error::Interrupted(known) if matches!(known.error, Error::InstanceLost(_)) => {
                own.retryable = true;
            }
            _ => {
                let hint = error.hint();
                own.would_allow = hint.map(|hint| format!("for the operator: {hint}").into());
            }
        }
        own
    }

    /// The fields that say why. Parts of the texts may come from the sandbox.
    pub(crate) fn fields(&self) -> Value {
        let mut fields = json!({
            "code": self.code,
            "message": text::line(&self.message),
            "retryable": self.retryable,
        });
        let optional = [("rule", &self.rule), ("would_allow", &self.would_allow)];
        let optional = optional.map(|(name, value)| (name, value.as_deref()));
        let execution = self.recorded.as_ref().map(|made| made.execution.as_str());
        for (name, value) in optional.into_iter().chain([("execution", execution)]) {
            if let Some(value) = value {
                fields[name] = text::line(value).into();
            }
        }
        fields
    }

    /// One sentence that says what happened, and one that says whether to try again.
    pub(crate) fn sentence(&self) -> String {
        let usual = match self.retryable {
            true => "The same call may succeed later.",
            false => "Do not retry the same call: it will fail again.",
        };
        let advice = self.advice.unwrap_or(usual);
        format!("{} ({}). {advice}", text::line(&self.message), self.code)
    }

    pub(crate) fn result(&self) -> CallToolResult {
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.sentence())]);
        result.structured_content = Some(self.fields());
        result.meta = self.recorded.as_ref().map(|recorded| recorded.meta());
        result
    }
}

/// Approvals are given by a person, never by the model.
fn advice(outcome: ApprovalOutcome) -> &'static str {
    match outcome {
        ApprovalOutcome::TimedOut => {
            "Do not retry by yourself: tell the user that the operator has to approve it, and wait until they ask you \
             to try again."
        }
        _ => "Do not retry the same call: it was not approved.",
    }
}
