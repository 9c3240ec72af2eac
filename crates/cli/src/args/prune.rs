//! Flags of `brig prune`.

use clap::Args;
use jiff::Timestamp;

use super::audit::moment;

/// Show or remove what is no longer needed: old sessions, and what ended processes left behind
///
/// Nothing is removed without --yes. A session is old if it was not used since the given time; one that
/// a process has open is kept. Saved states that nothing refers to, control groups, containers and
/// images of ended processes and of earlier versions are removed, too. Records of the audit log are
/// never removed by this: see `brig audit prune`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig prune                         what would be removed
  brig prune --yes
  brig prune --before 7d --yes       sessions that were not used for a week")]
pub(crate) struct PruneAllArgs {
    /// Remove sessions that were not used since: 2026-05-12T08:00:00Z, 2026-05-12, or 90d for 90 days
    /// ago
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "30d")]
    pub before: Timestamp,
    /// Remove it
    #[arg(long)]
    pub yes: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
