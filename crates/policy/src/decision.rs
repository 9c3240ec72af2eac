use serde::Serialize;

use crate::context::Request;

/// What is being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run source code in an interpreter.
    Execute,
    /// Run a command.
    Run,
}

impl Action {
    /// As conditions and records name it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Execute => "execute",
            Action::Run => "run",
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub allowed: bool,
    /// A stable reason code, such as `policy.default`.
    pub code: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    pub reason: String,
}

/// Anything that can answer a [`Request`].
pub trait Decider: Send + Sync + std::fmt::Debug {
    fn decide(&self, request: &Request<'_>) -> Decision;

    /// SHA-256 of what it decides by, if that can be said.
    fn policy_digest(&self) -> Option<String> {
        None
    }
}

/// No policy: code may run, within the limits of its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Decider for AllowAll {
    fn decide(&self, _request: &Request<'_>) -> Decision {
        Decision {
            allowed: true,
            code: "policy.none".into(),
            rule: None,
            reason: "no policy is loaded".into(),
        }
    }
}
