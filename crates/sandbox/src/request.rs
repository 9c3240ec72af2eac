//! What a caller asks to be run.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use brig_policy::{Action, Extra, Request as Question};
use serde::Serialize;
use tokio::io::AsyncRead;

use crate::AgentId;

/// The interpreters that source code can be given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Language {
    /// Python 3.
    Python,
    /// Bash.
    Bash,
    /// Node.js.
    Node,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Python, Self::Bash, Self::Node];

    /// The stable name, as in questions to policies and in errors.
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Bash => "bash",
            Language::Node => "node",
        }
    }

    /// What names of source files end with, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Language::Python => "py",
            Language::Bash => "sh",
            Language::Node => "js",
        }
    }
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Standard input of an execution.
pub type Stdin = Box<dyn AsyncRead + Send + Unpin>;

/// Ready when an execution is no longer wanted.
pub type Cancelled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The trace that a request belongs to: a W3C `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(String);

impl TraceParent {
    /// `None` if the text is not one: `VERSION-TRACE-PARENT-FLAGS`, of 2, 32, 16 and 2 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let zero = |part: &str| part.bytes().all(|b| b == b'0');
        let parts: Vec<&str> = text.splitn(5, '-').collect();
        let valid = matches!(parts[..], [version, trace, parent, flags]
            if [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2]
                && version != "ff" && !zero(trace) && !zero(parent)
                && parts.iter().all(|part| hex(part)));
        valid.then(|| Self(text.to_owned()))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Source code or a command.
#[derive(Clone, Debug)]
pub enum Work {
    /// Source code for an interpreter.
    Code {
        /// The interpreter.
        language: Language,
        /// The source code, of any size.
        source: Vec<u8>,
        /// Arguments of the program.
        args: Vec<String>,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

impl Work {
    pub(crate) fn action(&self) -> Action {
        match self {
            Work::Code { .. } => Action::Execute,
            Work::Command(_) => Action::Run,
        }
    }

    /// What policies are asked about it.
    pub(crate) fn question<'a>(&'a self, agent: &'a AgentId, facts: &'a Extra) -> Question<'a> {
        let mut question = Question::new(agent.as_str(), self.action());
        question.extra = Some(facts);
        match self {
            Work::Code {
                language, source, ..
            } => {
                question.language = Some(language.name());
                question.code = Some(source);
            }
            Work::Command(argv) => question.command = Some(argv),
        }
        question
    }
}

/// What a caller asks to be run.
#[non_exhaustive]
pub struct Request {
    /// What to run.
    pub work: Work,
    /// Added to the session's own variables; the same filter applies to both.
    pub env: Vec<(String, String)>,
    /// Inside the sandbox; relative to the workspace.
    pub cwd: Option<String>,
    /// What source code is called. A file name, such as `app.py`; or an absolute path in the sandbox
    /// of a directory that is mounted: then modules are found beside it. For Bash, links to what is in that
    /// directory are beside the copy that `$0` names.
    pub script: Option<String>,
    /// A pseudo-terminal in place of pipes.
    pub terminal: Option<TerminalSize>,
    /// Standard input. Without it, the program reads an empty one.
    pub stdin: Option<Stdin>,
    /// Replaces the session's default. If the session sets a limit, the stricter one applies.
    pub timeout: Option<Duration>,
    /// How much of each of stdout and stderr is kept. Replaces the session's default; if the session
    /// sets a limit, the stricter one applies.
    pub output_bytes: Option<u64>,
    /// Whether output is delivered as it comes, through [`crate::ExecutionHandle::next_event`]: all
    /// of it, however little of it is kept in the report, unless a policy limits it. A slow reader
    /// slows the program down.
    pub stream: bool,
    /// Facts that the caller adds for the decision.
    pub facts: Extra,
    /// Recorded in the receipt.
    pub trace: Option<TraceParent>,
    /// Cancels it when it is ready: also before there is an [`crate::ExecutionHandle`], while the request waits for
    /// an approval.
    pub cancelled: Option<Cancelled>,
}

impl Request {
    /// Source code for a fresh interpreter.
    pub fn code(language: Language, source: impl Into<Vec<u8>>) -> Self {
        Self::new(Work::Code {
            language,
            source: source.into(),
            args: Vec::new(),
        })
    }

    /// A program and its arguments.
    pub fn command<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self::new(Work::Command(argv.into_iter().map(Into::into).collect()))
    }

    /// A request with defaults for everything else.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            env: Vec::new(),
            cwd: None,
            script: None,
            terminal: None,
            stdin: None,
            timeout: None,
            output_bytes: None,
            stream: false,
            facts: Extra::default(),
            trace: None,
            cancelled: None,
        }
    }

    /// What policies would be asked, if this agent requested it.
    pub fn question<'a>(&'a self, agent: &'a AgentId) -> Question<'a> {
        self.work.question(agent, &self.facts)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_four_parts_of_hexadecimal_digits() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(TraceParent::parse(good).expect(good).as_str(), good);
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\u{1b}-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
