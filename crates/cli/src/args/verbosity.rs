//! Flags for how much is said on stderr.

use clap::Args;

use crate::log::{self, Level};

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct VerbosityArgs {
    /// Print only errors of Brig's own on stderr: no summaries, denials, warnings or notes
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Also print the plan, the mounts, what enforces each control, and the time of each step
    #[arg(long)]
    pub verbose: bool,
}

impl VerbosityArgs {
    /// Takes precedence over `BRIG_LOG`.
    pub(crate) fn apply(self) {
        if self.quiet {
            log::set(Level::Error);
        }
        if self.verbose {
            log::set(Level::Debug);
        }
    }
}
