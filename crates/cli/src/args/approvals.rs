//! Flags of `brig approvals`, and of the runs that ask.

use clap::{Args, Subcommand, ValueEnum};

/// Where the operator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalPlace {
    /// On the terminal that Brig runs on
    Terminal,
    /// With `brig approvals`, from another terminal of the same user
    Queue,
    /// Nowhere: what needs an approval is denied
    None,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ApprovalFlag {
    /// Where the operator is asked if the policy requires an approval [default: terminal, if Brig has one that
    /// the program does not read from, otherwise queue]
    #[arg(long, value_name = "WHERE", value_enum, help_heading = "Policy")]
    pub approvals: Option<ApprovalPlace>,
}

/// Answer what waits for an approval
///
/// A rule of a policy with `action: require_approval` lets a run or a call of a tool wait until the operator
/// answers. Without an answer in time it is denied. An approval counts once, and only for what was shown.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig approvals ls
  brig approvals show 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e
  brig approvals approve 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e
  brig approvals deny 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e --reason 'not on Fridays'")]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    Ls(ApprovalsListArgs),
    Show(ApprovalsShowArgs),
    Approve(ApprovalsAnswerArgs),
    Deny(ApprovalsAnswerArgs),
}

/// List what waits for an approval, the oldest first
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig approvals ls
  brig approvals ls --json | jq -r '.approvals[].id'")]
pub(crate) struct ApprovalsListArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show all of one request: the requester, the rule, and the code, the command or the arguments
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig approvals show 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e
  brig approvals show 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e --json | jq -r .subject.text")]
pub(crate) struct ApprovalsShowArgs {
    /// The id of the request
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Answer one request
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig approvals approve 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e
  brig approvals deny 5b0c6f0e1f7d4d0c8e9c2d3a4b5c6d7e --reason 'not on Fridays'")]
pub(crate) struct ApprovalsAnswerArgs {
    /// The id of the request
    #[arg(value_name = "ID")]
    pub id: String,
    /// Why; recorded, and shown to the requester
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
