//! One execution: what a backend runs, how it is signalled and supervised, and what a session knows
//! of it afterwards.

mod check;
mod handle;
pub(crate) mod supervise;
pub(crate) mod table;

use std::fmt;
use std::time::Duration;

use brig_policy::Extra;
use tokio::sync::mpsc;

pub use handle::ExecutionHandle;
pub use table::ExecutionInfo;

use crate::request::{Stdin, TerminalSize, TraceParent, Work};
use crate::{Event, KillReason};

/// A checked request, with the ends of its streams: what a backend runs. Only the lifecycle creates
/// one.
#[non_exhaustive]
pub struct Execution {
    /// What to run.
    pub work: Work,
    /// Already filtered.
    pub env: Vec<(String, String)>,
    /// Inside the sandbox; relative to the workspace.
    pub cwd: Option<String>,
    /// What source code is called: a file name, or an absolute path in the sandbox.
    pub script: Option<String>,
    /// A pseudo-terminal in place of pipes.
    pub terminal: Option<TerminalSize>,
    /// Without it, standard input reads as empty.
    pub stdin: Option<Stdin>,
    /// Output as it comes. A slow reader slows the program down.
    pub events: Option<mpsc::Sender<Event>>,
    /// Whether output is streamed and no policy limits it: then the limit applies only to what is
    /// kept.
    pub uncut: bool,
    /// How much of each stream is kept.
    pub output_bytes: u64,
    /// Enforced by the lifecycle. A backend that can end an execution by itself may use it too.
    pub timeout: Duration,
    /// What to do to it while it runs.
    pub signals: mpsc::UnboundedReceiver<ExecSignal>,
    /// Where a backend asks for the end of an execution that broke a limit. The kill then comes
    /// through `signals`, and if it has no effect in time, the instance is destroyed.
    pub supervisor: mpsc::UnboundedSender<ExecSignal>,
    pub(crate) facts: Extra,
    pub(crate) trace: Option<TraceParent>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

/// Sent to a running execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecSignal {
    /// Ends all its processes; the outcome has this reason.
    Kill(KillReason),
    /// A signal of the operating system, by its number, to the program.
    Posix(i32),
    /// The terminal has a new size.
    Resize(TerminalSize),
}

/// The caller's ends of an execution.
#[derive(Debug)]
pub(crate) struct Ends {
    pub signals: mpsc::UnboundedSender<ExecSignal>,
    pub events: Option<mpsc::Receiver<Event>>,
}
