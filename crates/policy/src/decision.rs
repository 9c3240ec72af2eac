use brig_reason::ReasonCode;
use serde::Serialize;

use crate::context::Request;

/// What is being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Run source code in an interpreter.
    Execute,
    /// Run a command.
    Run,
    /// Call a tool outside of the sandbox.
    CallTool,
}

impl Action {
    /// As conditions and records name it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Execute => "execute",
            Action::Run => "run",
            Action::CallTool => "call_tool",
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// Whether it may run.
    pub allowed: bool,
    /// Whether it may run once somebody approves it. Until then, `allowed` is false.
    pub needs_approval: bool,
    /// A stable reason code, such as `policy.default`.
    pub code: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// Why, in a sentence for people.
    pub reason: String,
}

impl Decision {
    /// It may run. The code is stable, and the reason is for people.
    pub fn allow(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            allowed: true,
            ..Self::deny(code, reason)
        }
    }

    /// It may not run.
    pub fn deny(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            allowed: false,
            needs_approval: false,
            code: code.into(),
            rule: None,
            reason: reason.into(),
        }
    }

    /// It may run once somebody approves it.
    pub fn require_approval(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            needs_approval: true,
            ..Self::deny(code, reason)
        }
    }

    /// Made by this rule.
    pub fn by_rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Of two deciders, the stricter answer: a denial, then one that needs approval. If both need it, one
    /// approval is for both, so both reasons are given.
    pub fn strictest(self, other: Self) -> Self {
        match (self.strictness(), other.strictness()) {
            (1, 1) => Self {
                reason: format!("{}; {}", self.reason, other.reason),
                rule: self.rule.or(other.rule),
                ..other
            },
            (own, others) if own > others => self,
            _ => other,
        }
    }

    fn strictness(&self) -> u8 {
        match (self.allowed, self.needs_approval) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
}

/// Anything that can answer a [`Request`].
pub trait Decider: Send + Sync + std::fmt::Debug {
    /// Decides on a request.
    fn decide(&self, request: &Request<'_>) -> Decision;

    /// SHA-256 of the policies that it decides by, if it has any.
    fn policy_digest(&self) -> Option<String> {
        None
    }
}

/// No policy: code may run, within the limits of its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Decider for AllowAll {
    fn decide(&self, _request: &Request<'_>) -> Decision {
        Decision::allow(ReasonCode::PolicyNone, "no policy is loaded")
    }
}
