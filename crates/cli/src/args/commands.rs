//! Flags of `brig commands`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RunPolicyArgs;

/// Show what a policy means for the installed programs
///
/// Nothing is run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig commands scan --policy policy.yaml
  brig run --observe build.py")]
pub(crate) struct CommandsArgs {
    #[command(subcommand)]
    pub command: CommandsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CommandsCommand {
    Scan(ScanArgs),
}

/// Show which programs a policy denies and which it allows
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig commands scan --policy policy.yaml
  brig commands scan --policy policy.yaml --rootfs ./debian
  brig commands scan --policy policy.yaml --json | jq .covered")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub policies: RunPolicyArgs,
    /// Look at this root file system in place of the host's system directories
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
