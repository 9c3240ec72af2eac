//! Why a call failed.

use brig_reason::ReasonCode;

/// Why a tool failed. The text reaches the sandboxed code.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool says that it failed, in its own words.
    #[error("{0}")]
    Failed(String),
    /// It did not answer in time.
    #[error("the tool did not answer within {} s", .0.as_secs_f64())]
    TimedOut(std::time::Duration),
    /// It can't be reached: its program did not start, or its server is gone.
    #[error("the tool is not available")]
    Unavailable,
    /// What it answered is larger than allowed.
    #[error("the result of the tool is larger than {0} bytes")]
    ResultTooLarge(usize),
    /// What it answered is not what it promised.
    #[error("the result of the tool is invalid: {0}")]
    InvalidResult(String),
}

impl ToolError {
    /// The stable reason code.
    #[must_use]
    pub fn code(&self) -> ReasonCode {
        match self {
            Self::Failed(_) => ReasonCode::ToolFailed,
            Self::TimedOut(_) => ReasonCode::ToolTimeout,
            Self::Unavailable => ReasonCode::ToolUnavailable,
            Self::ResultTooLarge(_) => ReasonCode::ToolResultTooLarge,
            Self::InvalidResult(_) => ReasonCode::ToolResult,
        }
    }
}
