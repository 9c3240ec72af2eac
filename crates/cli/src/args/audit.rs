//! Flags of `brig audit`.

use std::path::PathBuf;
use std::time::Duration;

use brig_audit::Verdict;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::values;

/// Show, verify, prove and export the audit log
///
/// Every session, decision, execution and attempt is recorded in a tamper-evident log: each record
/// contains the hash of the one before it, and signed heads cover all of them.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit show --decision denied-by-policy --since 1h
  brig audit verify
  brig audit head > head.txt                      to keep elsewhere
  brig audit verify --head head.txt --key key.pub
  jq .record ~/.local/state/brig/audit/*.jsonl")]
pub(crate) struct AuditArgs {
    /// The directory of the log [default: $XDG_STATE_HOME/brig/audit]
    #[arg(long, global = true, value_name = "DIR")]
    pub log: Option<PathBuf>,
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    Show(ShowArgs),
    Verify(VerifyArgs),
    Prove(ProveArgs),
    CheckProof(CheckProofArgs),
    Consistency(ConsistencyArgs),
    Head(HeadArgs),
    Export(ExportArgs),
    AgtChain(AgtChainArgs),
    RotateKey(RotateKeyArgs),
    Prune(PruneArgs),
}

/// Which records
#[derive(Args, Debug)]
pub(crate) struct Filter {
    /// Only this agent
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only this execution
    #[arg(long, value_name = "ID")]
    pub execution: Option<String>,
    /// Only this kind of event, such as receipt
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
    /// Only this decision
    #[arg(long, value_name = "DECISION", value_parser = verdict)]
    pub decision: Option<Verdict>,
    /// Only records from this time on: 2026-05-12T08:00:00Z, 2026-05-12, or 90m for 90 minutes ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Only records before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Timestamp>,
}

/// Show records
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit show
  brig audit show --event receipt --agent alice --since 2026-05-12
  brig audit show --follow --json | jq .record.event")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub filter: Filter,
    /// Only the last COUNT records
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "follow")]
    pub last: Option<usize>,
    /// Keep running and show new records
    #[arg(short, long)]
    pub follow: bool,
    /// Print the lines of the log, one JSON object each
    #[arg(long)]
    pub json: bool,
}

/// Verify the whole log: every record, their order, and the signed heads
///
/// Detects records that were edited, removed, moved, repeated or added, and names the first bad
/// one. With a head that was kept elsewhere it also detects a log that was truncated, rolled back
/// to an older state, or replaced as a whole. Exits with 0 if the log is valid, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit verify
  brig audit verify --since-last
  brig audit verify --head head.txt --key key.pub
  brig audit verify --log /mnt/backup/audit --json")]
pub(crate) struct VerifyArgs {
    /// A signed head that was kept elsewhere
    #[arg(long, value_name = "FILE")]
    pub head: Option<PathBuf>,
    /// The public key of the log, kept elsewhere [default: key.pub beside the log]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Skip segments that were verified before and that, according to the file system, have not
    /// changed since
    #[arg(long)]
    pub since_last: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Prove that a record is in the log
///
/// The proof is a JSON object with the record, a signed head and the hashes that connect them. It
/// can be checked without the log, with the public key alone.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit prove 17 > proof.json
  brig audit prove 0198c0de-7f3a-7c41-9a52-3f1d8b7e6a90      the receipt of an execution")]
pub(crate) struct ProveArgs {
    /// The number of a record, its hash, or the id of an execution
    pub record: String,
}

/// Check a proof, of a record or of two heads, without the log
///
/// Exits with 0 if the proof is valid, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit check-proof proof.json --key key.pub
  brig audit prove 17 | brig audit check-proof -")]
pub(crate) struct CheckProofArgs {
    /// The proof, or - for standard input
    #[arg(value_name = "FILE")]
    pub proof: PathBuf,
    /// The public key of the log [default: the keys of the local log]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Prove that the log under one head is the beginning of the log under a later one
///
/// Exits with 0 if it is, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit consistency monday.txt friday.txt
  brig audit consistency monday.txt friday.txt --json > proof.json")]
pub(crate) struct ConsistencyArgs {
    /// The older head
    pub old: PathBuf,
    /// The newer head
    pub new: PathBuf,
    /// The public key of the log [default: the keys of the local log]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Print the proof and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print the signed head of the log, to keep elsewhere
///
/// A head covers all records up to it. Anyone who has a head can later show that one of these
/// records was changed or removed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit head > head.txt
  brig audit head | ssh witness 'cat >> brig-heads.txt'")]
pub(crate) struct HeadArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Write the log to stdout in the format of another system
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit export --format csv > audit.csv
  brig audit export --format ocsf --since 24h > events.jsonl
  brig audit export --format agt > agt.json")]
pub(crate) struct ExportArgs {
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Receipts as a chain of the Agent Governance Toolkit, with hashes, roots and proofs
    Agt,
    /// CloudEvents 1.0, one per line
    Cloudevents,
    /// Open Cybersecurity Schema Framework 1.6, one event per line
    Ocsf,
    /// A table
    Csv,
}

/// Compute what the Agent Governance Toolkit computes for a list of its entries
///
/// Prints one JSON object: canonical, hashes, roots_after_each_append, proofs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit agt-chain entries.json
  jq .entries export.json | brig audit agt-chain -")]
pub(crate) struct AgtChainArgs {
    /// A JSON list of entries, or - for standard input
    #[arg(value_name = "FILE")]
    pub entries: PathBuf,
}

/// Replace the key that signs heads
///
/// A record that both keys sign links the old key to the new one, so heads and proofs under the old
/// key remain valid. The old secret key is deleted.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit rotate-key")]
pub(crate) struct RotateKeyArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Remove the oldest records; the remaining records can still be proved
///
/// Whole segments are removed, never the newest one, and only if all their records are older than
/// the given time. The log is verified first. A signed summary of the removed records is kept:
/// earlier heads and proofs remain valid, and `verify` starts there.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig audit prune --before 90d --dry-run
  brig audit prune --before 2026-01-01 --keep-head")]
pub(crate) struct PruneArgs {
    /// Remove records before this time: 2026-05-12T08:00:00Z, 2026-05-12, or 90d for 90 days ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub before: Timestamp,
    /// Keep the previous signed head, as `head-SIZE` in the directory of the log
    #[arg(long)]
    pub keep_head: bool,
    /// Only show what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

fn verdict(text: &str) -> Result<Verdict, String> {
    let known = Verdict::ALL.into_iter().find(|known| known.name() == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = Verdict::ALL.iter().map(|known| known.name()).collect();
        format!("use one of {}", names.join(", "))
    })
}

/// A point in time, or how long ago.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let midnight = date.to_datetime(jiff::civil::Time::midnight());
        let at = jiff::tz::TimeZone::UTC.to_timestamp(midnight);
        return at.map_err(|error| error.to_string());
    }
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok());
    let ago = match days {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * 24 * 60 * 60)),
        None => values::duration(text),
    };
    let ago = ago.map_err(|_| {
        "use a time such as 2026-05-12T08:00:00Z, 2026-05-12, 90m or 30d".to_owned()
    })?;
    Timestamp::now()
        .checked_sub(ago)
        .map_err(|error| error.to_string())
}
