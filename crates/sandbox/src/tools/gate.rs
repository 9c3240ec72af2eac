//! The gate that every call of a tool passes, outside of the sandbox: allowlist, number of calls, rules,
//! schema, approval, the call itself, size and schema of the result. A call is recorded before it is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brig_audit::{Tool as Call, receipt};
use brig_policy::{Action, Decider, Decision, Extra, Map, PolicySet, Request as Question};
use brig_reason::ReasonCode;
use brig_tools::{Arguments, ToolError};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::message::without_paths;
use super::{ASKING_AT_ONCE, AT_ONCE, AllowedTool, MAX_ARGUMENTS, MAX_RESULT, TIMEOUT, ToolSet};
use crate::approvals::{self, Approver, Asker, Subject};
use crate::shared::{SessionKey, lock};
use crate::{AgentId, Attempts, ExecutionId};

/// Characters of a text that an error repeats.
const LONGEST: usize = 512;

/// Why a call was not made, or failed. The text is for the code that called.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The stable reason code.
    pub code: ReasonCode,
    /// What happened, and what to do. Without host paths and secrets.
    pub message: String,
}

/// Who decides about the calls of an execution.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub agent: AgentId,
    pub facts: Extra,
    pub decider: Arc<dyn Decider>,
    pub policies: Option<Arc<PolicySet>>,
    pub session: SessionKey,
    pub execution: ExecutionId,
    pub approver: Option<Arc<dyn Approver>>,
}

/// The tools of one execution. Closed when the execution ends: calls that still run are cancelled.
#[derive(Debug)]
pub struct ToolGate {
    tools: ToolSet,
    caller: Caller,
    attempts: Arc<Attempts>,
    made: AtomicU64,
    next: AtomicU64,
    slots: Semaphore,
    /// Requests for an approval that wait for an answer.
    asking: Semaphore,
    /// Locked until a call that was removed is recorded: who closes the gate finds it here, or on record.
    running: Mutex<HashMap<u64, CallSlot>>,
    closed: watch::Sender<bool>,
}

/// One of the calls that an execution may make at once.
#[derive(Debug)]
pub struct Turn<'a>(
    #[expect(dead_code, reason = "held until the call has ended")] SemaphorePermit<'a>,
);

/// A call that was allowed and has not been recorded yet.
#[derive(Debug)]
struct CallSlot {
    call: Call,
    since: Instant,
}

impl ToolGate {
    pub(crate) fn new(tools: ToolSet, caller: Caller, attempts: Arc<Attempts>) -> Self {
        Self {
            tools,
            caller,
            attempts,
            made: AtomicU64::new(0),
            next: AtomicU64::new(0),
            slots: Semaphore::new(AT_ONCE),
            asking: Semaphore::new(ASKING_AT_ONCE),
            running: Mutex::default(),
            closed: watch::Sender::new(false),
        }
    }

    /// What may be called.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// Waits until another call may be read: parsed arguments take much more memory than their text, so few are
    /// kept at once.
    ///
    /// # Errors
    ///
    /// If the execution ends first.
    pub async fn turn(&self) -> Result<Turn<'_>, CallError> {
        let mut closed = self.closed.subscribe();
        let slot = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => None,
            slot = self.slots.acquire() => slot.ok(),
        };
        slot.map(Turn).ok_or_else(cancelled)
    }

    /// Calls a tool. Returns its result as JSON.
    ///
    /// # Errors
    ///
    /// If the call is not allowed or fails.
    pub async fn call(
        &self,
        _turn: Turn<'_>,
        name: &str,
        arguments: Arguments,
    ) -> Result<Vec<u8>, CallError> {
        let arguments = Value::Object(arguments);
        let written = arguments.to_string();
        let mut call = Call {
            tool: name.to_owned(),
            arguments_digest: Some(receipt::digest(written.as_bytes())),
            arguments: self.recorded_arguments(&arguments),
            ..Call::default()
        };
        let (tool, arguments, decision) = match self.decide(name, arguments, &written) {
            Ok(allowed) => allowed,
            Err((error, rule)) => {
                call.code = error.code.into();
                call.rule = rule;
                return Err(self.recorded(call).err().unwrap_or(error));
            }
        };
        call.allowed = decision.allowed;
        call.code = decision.code.clone();
        call.rule = decision.rule.clone();
        let mut closed = self.closed.subscribe();
        let Some(number) = self.started(call) else {
            return Err(cancelled());
        };
        // If the caller goes away meanwhile, this future is dropped.
        let _recorded = CancelGuard { gate: self, number };
        if decision.needs_approval {
            let subject = Subject::of_call(name, &written);
            tokio::select! {
                approved = self.approve(number, subject, &decision) => approved?,
                _ = closed.wait_for(|closed| *closed) => return Err(cancelled()),
            }
        }
        let result = tokio::select! {
            result = invoke(tool, arguments, &written) => result,
            _ = closed.wait_for(|closed| *closed) => Err(cancelled()),
        };
        self.ended(number, result)
    }

    /// Cancels the calls that still run, and refuses all others. They are recorded when this returns.
    pub(crate) fn close(&self) {
        let running = {
            let mut running = lock(&self.running);
            self.closed.send_replace(true);
            std::mem::take(&mut *running)
        };
        for running in running.into_values() {
            self.cancelled(running);
        }
    }

    fn cancelled(&self, CallSlot { mut call, since }: CallSlot) {
        call.code = ReasonCode::ToolCancelled.into();
        call.milliseconds = Some(milliseconds(since.elapsed()));
        // If it can't be recorded, that ends the execution.
        let _ = self.attempts.tool(call);
    }

    fn decide(
        &self,
        name: &str,
        arguments: Value,
        written: &str,
    ) -> Result<(&AllowedTool, Arguments, Decision), (CallError, Option<String>)> {
        let Some(tool) = self.tools.tools.get(name) else {
            return Err((self.not_allowed(name), None));
        };
        if self.made.fetch_add(1, Ordering::Relaxed) >= self.tools.max_calls {
            let most = self.tools.max_calls;
            let message = format!(
                "this execution has made the {most} tool calls that its policy allows; do not retry; continue \
                 without further calls"
            );
            return Err((error(ReasonCode::ToolTooMany, message), None));
        }
        let invalid = |problem: String| {
            let message = format!(
                "invalid arguments for the tool `{name}`: {problem}; correct the arguments before you call it again"
            );
            (error(ReasonCode::ToolArguments, message), None)
        };
        if written.len() > MAX_ARGUMENTS {
            return Err(invalid(format!("more than {MAX_ARGUMENTS} bytes")));
        }
        let decision = self.ask(name, written);
        if !decision.allowed && !decision.needs_approval {
            let reason = short(&self.attempts.redact(&decision.reason));
            let message = format!(
                "the policy denied this call of the tool `{name}`: {reason}; do not retry with the same arguments"
            );
            return Err((error(ReasonCode::ToolDenied, message), decision.rule));
        }
        if let Some(problem) = tool.arguments.problem(&arguments) {
            return Err(invalid(short(&problem)));
        }
        match arguments {
            Value::Object(arguments) => Ok((tool, arguments, decision)),
            _ => Err(invalid("not a JSON object".into())),
        }
    }

    /// The sandbox's own decider first, then the policies, as for the execution itself.
    fn ask(&self, name: &str, written: &str) -> Decision {
        let Caller {
            agent,
            facts,
            decider,
            policies,
            ..
        } = &self.caller;
        // Read again, with numbers as policies compare them.
        let arguments: Map = serde_json::from_str(written).unwrap_or_default();
        let question = Question {
            tool: Some(name),
            tool_arguments: Some(&arguments),
            extra: Some(facts),
            ..Question::new(agent.as_str(), Action::CallTool)
        };
        let decision = decider.decide(&question);
        match policies {
            Some(policies) if decision.allowed || decision.needs_approval => {
                decision.strictest(policies.decide(&question))
            }
            _ => decision,
        }
    }

    /// Waits for the answer of who is asked. The time limit of the call does not run yet.
    async fn approve(
        &self,
        number: u64,
        subject: Subject,
        decision: &Decision,
    ) -> Result<(), CallError> {
        let name = subject.name.clone();
        let _asking = self.asking.acquire().await.map_err(|_| cancelled())?;
        let Caller {
            session,
            execution,
            approver,
            policies,
            ..
        } = &self.caller;
        let asker = Asker {
            session,
            execution,
            approver: approver.as_ref(),
            timeout: approvals::timeout(policies.as_deref()),
            attempts: &self.attempts,
            id: approvals::new_id(),
        };
        let unrecorded = "the approval could not be recorded, so this execution is ended";
        let asked = asker.ask(subject, decision).await;
        let approval = asked.map_err(|_| error(ReasonCode::ToolUnavailable, unrecorded.into()))?;
        let decision = approvals::decision(decision, &approval, asker.timeout);
        let mut running = lock(&self.running);
        // Recorded already if the execution has ended.
        let Some(entry) = running.get_mut(&number) else {
            return Err(cancelled());
        };
        entry.call.approval = Some(approval);
        if decision.allowed {
            entry.call.allowed = true;
            entry.call.code = decision.code;
            entry.since = Instant::now();
            return Ok(());
        }
        entry.call.code = ReasonCode::ToolApproval.into();
        let call = running.remove(&number).map(|entry| entry.call);
        call.map_or(Ok(()), |call| self.recorded(call))?;
        drop(running);
        let reason = short(&self.attempts.redact(&decision.reason));
        let message = format!(
            "this call of the tool `{name}` needs an approval that was not given: {reason}; do not retry, tell the \
             operator"
        );
        Err(error(ReasonCode::ToolApproval, message))
    }

    /// If the policies say so. Secrets are found before they are escaped as JSON.
    fn recorded_arguments(&self, arguments: &Value) -> Option<String> {
        let policies = self.caller.policies.as_ref()?;
        policies
            .records_tool_arguments()
            .then(|| self.redacted(arguments).to_string())
    }

    fn redacted(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.attempts.redact(text).into(),
            Value::Array(all) => all.iter().map(|one| self.redacted(one)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (self.attempts.redact(name), self.redacted(value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Says nothing about whether such a tool exists.
    fn not_allowed(&self, name: &str) -> CallError {
        let known: Vec<_> = self.tools.specs().map(|spec| spec.name.as_str()).collect();
        let message = format!(
            "the tool `{}` is not on the allowlist; do not retry, the tools are: {}",
            short(&name.escape_default().to_string()),
            known.join(", ")
        );
        error(ReasonCode::ToolNotAllowed, message)
    }

    /// `None` if the execution has ended.
    fn started(&self, call: Call) -> Option<u64> {
        let mut running = lock(&self.running);
        if *self.closed.borrow() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        running.insert(number, CallSlot { call, since });
        Some(number)
    }

    fn ended(&self, number: u64, result: Result<Vec<u8>, CallError>) -> Result<Vec<u8>, CallError> {
        let mut running = lock(&self.running);
        // Recorded already if the execution has ended.
        let Some(CallSlot { mut call, since }) = running.remove(&number) else {
            return Err(cancelled());
        };
        call.success = Some(result.is_ok());
        if let Err(error) = &result {
            call.code = error.code.into();
        }
        call.milliseconds = Some(milliseconds(since.elapsed()));
        self.recorded(call)?;
        result
    }

    fn recorded(&self, call: Call) -> Result<(), CallError> {
        let unrecorded = "the call could not be recorded, so this execution is ended";
        self.attempts
            .tool(call)
            .map_err(|_| error(ReasonCode::ToolUnavailable, unrecorded.into()))
    }
}

/// Records a call that was dropped.
struct CancelGuard<'a> {
    gate: &'a ToolGate,
    number: u64,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        let mut running = lock(&self.gate.running);
        if let Some(left) = running.remove(&self.number) {
            self.gate.cancelled(left);
        }
    }
}

/// `written`: the arguments as text.
async fn invoke(
    allowed: &AllowedTool,
    arguments: Arguments,
    written: &str,
) -> Result<Vec<u8>, CallError> {
    let spec = allowed.tool.spec();
    let limit = spec.timeout.unwrap_or(TIMEOUT);
    let answered = match tokio::time::timeout(limit, allowed.tool.call(arguments)).await {
        Ok(answered) => answered,
        Err(_) => Err(ToolError::TimedOut(limit)),
    };
    let checked = answered.and_then(|result| {
        let bytes = serde_json::to_vec(&result)
            .map_err(|error| ToolError::InvalidResult(error.to_string()))?;
        if bytes.len() > MAX_RESULT {
            return Err(ToolError::ResultTooLarge(MAX_RESULT));
        }
        let schema = allowed.result.as_ref();
        match schema.and_then(|schema| schema.problem(&result)) {
            Some(problem) => Err(ToolError::InvalidResult(short(&problem))),
            None => Ok(bytes),
        }
    });
    checked.map_err(|failed| {
        let code = failed.code();
        let said = without_paths(&short(&failed.to_string()), written);
        error(code, format!("the tool `{}` failed: {said}", spec.name))
    })
}

fn error(code: ReasonCode, message: String) -> CallError {
    CallError { code, message }
}

fn cancelled() -> CallError {
    let message = "the execution ended before the tool answered";
    error(ReasonCode::ToolCancelled, message.into())
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
