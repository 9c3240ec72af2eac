//! Flags of `brig commands`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::UnderArgs;

/// Look at what a policy means for the programs of a system
///
/// Nothing is run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig commands scan --policy policy.yaml
  brig run --observe build.py")]
pub struct CommandsArgs {
    #[command(subcommand)]
    pub command: CommandsCommand,
}

#[derive(Debug, Subcommand)]
pub enum CommandsCommand {
    Scan(ScanArgs),
}

/// Show which programs a policy covers, denies and leaves
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig commands scan --policy policy.yaml
  brig commands scan --policy policy.yaml --rootfs ./debian
  brig commands scan --policy policy.yaml --json | jq .covered")]
pub struct ScanArgs {
    #[command(flatten)]
    pub under: UnderArgs,
    /// Look at this root file system in place of the host's system folders
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
