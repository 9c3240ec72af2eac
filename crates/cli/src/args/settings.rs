//! Flags of `brig config`.

use clap::{Args, Subcommand};

/// Show the settings that apply unless a flag says otherwise
#[derive(Args, Debug)]
#[command(after_long_help = "\
The file is $XDG_CONFIG_HOME/brig/config.yaml (usually ~/.config/brig/config.yaml):

  defaults:
    backend: native
    policy: policy.yaml
    limits: {memory: 1G, cpu: 2, timeout: 5m}
    options: {image: 'debian:13'}

Examples:
  brig config show
  brig config show --json | jq '.settings[] | select(.from != \"built in\")'")]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    pub command: SettingsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    Show(SettingsShowArgs),
}

/// Show every setting, its value, and where it comes from
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig config show
  brig config show --json")]
pub(crate) struct SettingsShowArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
