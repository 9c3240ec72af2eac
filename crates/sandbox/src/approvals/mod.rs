//! Approval, the third answer beside allow and deny: who is asked, what they are shown, and the wait for the
//! answer. Whatever is not an approval in time is a denial.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_audit::{Approval, ApprovalOutcome, ApprovalRequested, receipt};
use brig_policy::{Decision, PolicySet};
use brig_reason::ReasonCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use queue::{ApprovalQueue, QueueError};

use crate::request::Work;
use crate::shared::SessionKey;
use crate::{AgentId, Attempts, ExecutionId, Result, SessionId};

/// How long an answer is waited for if no policy sets it.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The most bytes of the code, the command or the arguments that are shown. The digest is of all of it.
const SHOWN: usize = 64 * 1024;

/// Who is asked where a policy requires an approval: an operator, or a program that answers for one.
#[async_trait]
pub trait Approver: Send + Sync + fmt::Debug {
    /// Asks, and returns the answer. It counts for this request alone. After [`ApprovalRequest::timeout`], or if
    /// the execution ends first, the future is dropped.
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer;
}

/// What somebody is asked to approve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// Random, so that it can't be guessed.
    pub id: String,
    /// The agent that asks.
    pub agent: AgentId,
    /// The session it is for.
    pub session: SessionId,
    /// The execution that starts, or that calls a tool.
    pub execution: ExecutionId,
    /// What would be run or called.
    pub subject: Subject,
    /// The rule that requires it. `None` if it is the default action.
    pub rule: Option<String>,
    /// The message of the rule.
    pub message: String,
    /// When it was asked.
    pub asked: Timestamp,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// What would be run or called. The texts come from the agent: escape them before you show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subject {
    /// Code, a command or a call.
    pub kind: SubjectKind,
    /// The language, the program or the tool.
    pub name: String,
    /// The source, the command as a line of a shell, or the arguments as JSON. At most 64 KiB of it.
    pub text: String,
    /// The length of the whole text.
    pub bytes: usize,
    /// Arguments of a program that is given as code.
    pub arguments: Vec<String>,
    /// SHA-256 of the whole source, command or arguments, as in records.
    pub digest: String,
}

/// The kind of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SubjectKind {
    /// Source code for an interpreter.
    Code,
    /// A program and its arguments.
    Command,
    /// A call of a tool.
    Tool,
}

impl SubjectKind {
    /// The stable name, as in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Command => "command",
            Self::Tool => "tool",
        }
    }
}

impl Subject {
    pub(crate) fn of_work(work: &Work, digest: &str) -> Self {
        let (kind, name, text, arguments) = match work {
            Work::Code {
                language,
                source,
                args,
            } => (
                SubjectKind::Code,
                language.name().to_owned(),
                String::from_utf8_lossy(source).into_owned(),
                args.clone(),
            ),
            Work::Command(argv) => (
                SubjectKind::Command,
                argv.first().cloned().unwrap_or_default(),
                brig_policy::command_line(argv),
                Vec::new(),
            ),
        };
        Self::new(kind, name, &text, arguments, digest.to_owned())
    }

    /// `arguments` as they are given to the tool.
    pub(crate) fn of_call(tool: &str, arguments: &str) -> Self {
        let digest = receipt::digest(arguments.as_bytes());
        Self::new(
            SubjectKind::Tool,
            tool.to_owned(),
            arguments,
            Vec::new(),
            digest,
        )
    }

    fn new(
        kind: SubjectKind,
        name: String,
        text: &str,
        arguments: Vec<String>,
        digest: String,
    ) -> Self {
        let end = text.floor_char_boundary(SHOWN);
        Self {
            kind,
            name,
            bytes: text.len(),
            text: text[..end].to_owned(),
            arguments,
            digest,
        }
    }

    /// Whether all of the text is shown.
    pub fn is_whole(&self) -> bool {
        self.text.len() == self.bytes
    }
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Whether it is approved.
    pub approved: bool,
    /// Who says so, as it is recorded.
    pub by: String,
    /// Why, if they say.
    pub reason: Option<String>,
}

impl ApprovalAnswer {
    /// Approves the request.
    pub fn approve(by: impl Into<String>) -> Self {
        Self {
            approved: true,
            by: by.into(),
            reason: None,
        }
    }

    /// Denies the request.
    pub fn deny(by: impl Into<String>) -> Self {
        Self {
            approved: false,
            ..Self::approve(by)
        }
    }

    /// With a reason, which is recorded and shown to the requester.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

type Asking = Pin<Box<dyn Future<Output = ApprovalAnswer> + Send>>;

/// A function as an [`Approver`].
pub(crate) struct ApprovalFunction(Box<dyn Fn(ApprovalRequest) -> Asking + Send + Sync>);

impl ApprovalFunction {
    pub(crate) fn new<F, A>(ask: F) -> Self
    where
        F: Fn(ApprovalRequest) -> A + Send + Sync + 'static,
        A: Future<Output = ApprovalAnswer> + Send + 'static,
    {
        Self(Box::new(move |request| Box::pin(ask(request))))
    }
}

impl fmt::Debug for ApprovalFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalFunction")
    }
}

#[async_trait]
impl Approver for ApprovalFunction {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        (self.0)(request.clone()).await
    }
}

/// How long an answer is waited for.
pub(crate) fn timeout(policies: Option<&PolicySet>) -> Duration {
    let set = policies.and_then(PolicySet::approval_timeout);
    set.unwrap_or(TIMEOUT)
}

/// Asks for one execution.
pub(crate) struct Asker<'a> {
    pub session: &'a SessionKey,
    pub execution: &'a ExecutionId,
    pub approver: Option<&'a Arc<dyn Approver>>,
    pub timeout: Duration,
    pub attempts: &'a Attempts,
    /// Of the request: [`new_id`].
    pub id: String,
}

/// Random, so that it can't be guessed.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl Asker<'_> {
    /// Returns what came of it, which is recorded. Fails only if that is not possible.
    pub(crate) async fn ask(&self, subject: Subject, decision: &Decision) -> Result<Approval> {
        let id = self.id.clone();
        let Some(approver) = self.approver else {
            // Nobody is asked, so there is nothing to record but the denial.
            return Ok(ended(id, ApprovalOutcome::Unattended, Instant::now()));
        };
        self.attempts.approval_requested(ApprovalRequested {
            request: id.clone(),
            kind: subject.kind.name().into(),
            name: subject.name.clone(),
            digest: subject.digest.clone(),
            rule: decision.rule.clone(),
            timeout_seconds: self.timeout.as_secs(),
        })?;
        let mut pending = PendingRequest {
            attempts: self.attempts,
            id: Some(id.clone()),
            since: Instant::now(),
        };
        let request = ApprovalRequest {
            id,
            agent: self.session.agent.clone(),
            session: self.session.session.clone(),
            execution: self.execution.clone(),
            subject,
            rule: decision.rule.clone(),
            message: decision.reason.clone(),
            asked: Timestamp::now(),
            timeout: self.timeout,
        };
        let answer = tokio::time::timeout(self.timeout, approver.ask(&request)).await;
        pending.id = None;
        let mut approval = ended(request.id, ApprovalOutcome::TimedOut, pending.since);
        if let Ok(answer) = answer {
            approval.outcome = match answer.approved {
                true => ApprovalOutcome::Approved,
                false => ApprovalOutcome::Denied,
            };
            approval.by = Some(answer.by);
            approval.reason = answer.reason;
        }
        self.attempts.approval_answered(approval)
    }
}

/// A request that nobody has answered yet. If it is dropped, that is recorded.
struct PendingRequest<'a> {
    attempts: &'a Attempts,
    id: Option<String>,
    since: Instant,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let cancelled = ended(id, ApprovalOutcome::Cancelled, self.since);
            // If it can't be recorded, that ends the execution.
            let _ = self.attempts.approval_answered(cancelled);
        }
    }
}

fn ended(request: String, outcome: ApprovalOutcome, since: Instant) -> Approval {
    Approval {
        request,
        outcome,
        by: None,
        reason: None,
        milliseconds: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

/// Of an execution that was cancelled meanwhile. The request itself is recorded as cancelled.
pub(crate) fn cancelled(request: &str, since: Instant) -> Approval {
    ended(request.to_owned(), ApprovalOutcome::Cancelled, since)
}

/// The decision after the answer.
pub(crate) fn decision(before: &Decision, approval: &Approval, timeout: Duration) -> Decision {
    let by = approval.by.as_deref().unwrap_or("somebody");
    let mut what = match approval.outcome {
        ApprovalOutcome::Approved => format!("approved by {by}"),
        ApprovalOutcome::Denied => format!("{by} denied it"),
        ApprovalOutcome::TimedOut => {
            format!("it was not approved within {} s", timeout.as_secs())
        }
        ApprovalOutcome::Unattended => "it needs an approval, but there is no approver".into(),
        ApprovalOutcome::Cancelled => "it was cancelled before an answer".into(),
    };
    if let Some(reason) = &approval.reason {
        what = format!("{what}: {reason}");
    }
    let reason = format!("{} ({what})", before.reason);
    let mut decision = match approval.outcome {
        ApprovalOutcome::Approved => Decision::allow(ReasonCode::PolicyApproved, reason),
        _ => Decision::deny(ReasonCode::PolicyApproval, reason),
    };
    decision.rule = before.rule.clone();
    decision
}

/// The decision on an execution whose caller does not wait any more.
pub(crate) fn abandoned(before: &Decision) -> Decision {
    decision(before, &cancelled("", Instant::now()), Duration::ZERO)
}
