//! Flags of `brig sandbox`.

use std::path::PathBuf;

use brig_egress::Rule;
use clap::{Args, Subcommand};

/// Say what every sandbox may reach, and see what was reached
///
/// HOST is `host`, `*.domain` (every name below it, not itself), an address or a network such as
/// `10.0.0.0/8`, each with `:port` or `:*`. Without one, an allowed host may be reached on ports 80
/// and 443, and a blocked one on none.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The lists are in $XDG_CONFIG_HOME/brig/config.yaml (usually ~/.config/brig/config.yaml). What the
policy, the agent file, this list and --allow allow is allowed; what is blocked here never is.

Examples:
  brig sandbox allow pypi.org '*.pythonhosted.org'
  brig sandbox check pypi.org
  brig sandbox list
  brig sandbox block '*.pastebin.com'
  brig sandbox suggest")]
pub struct SandboxArgs {
    #[command(subcommand)]
    pub command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Let every sandbox reach these hosts
    ///
    /// All of them are checked before anything is written.
    #[command(after_long_help = "\
Examples:
  brig sandbox allow pypi.org '*.pythonhosted.org'
  brig sandbox allow db.internal:5432 10.1.2.3:8080")]
    Allow(HostsArgs),
    /// Take hosts off the list of those that may be reached
    ///
    /// A host that is not on it is no error. To keep a host from being reached whoever allows it, use
    /// `brig sandbox block`.
    #[command(
        visible_alias = "rm",
        after_long_help = "\
Examples:
  brig sandbox deny pypi.org"
    )]
    Deny(HostsArgs),
    #[command(visible_alias = "ls")]
    List(ListHostsArgs),
    /// Keep every sandbox from reaching these hosts, whoever allows them
    #[command(after_long_help = "\
Examples:
  brig sandbox block '*.pastebin.com' 203.0.113.0/24")]
    Block(HostsArgs),
    /// Take hosts off the list of those that may not be reached
    #[command(after_long_help = "\
Examples:
  brig sandbox unblock '*.pastebin.com'")]
    Unblock(HostsArgs),
    Check(CheckHostArgs),
    Suggest(SuggestArgs),
    Used(UsedArgs),
}

#[derive(Args, Debug)]
pub struct HostsArgs {
    /// One or more hosts
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<Rule>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show which hosts are allowed and which are blocked
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox list
  brig sandbox list --json | jq -r '.allow[]'")]
pub struct ListHostsArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Say whether a host may be reached, by which rule of which layer, and why
///
/// Exits with 0 if it may, otherwise with 1. Nothing is looked up or connected to.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox check pypi.org
  brig sandbox check --policy policy.yaml api.example.com:8443
  brig sandbox check --for ./reviewer.yaml api.example.com")]
pub struct CheckHostArgs {
    /// A host and a port [default port: 443]
    #[arg(value_name = "HOST[:PORT]")]
    pub host: Rule,
    /// With the rules of this policy; given several times, they hold together
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// With the rules of this agent, and of its policy
    #[arg(long = "for", value_name = "REF")]
    pub agent: Option<String>,
    /// With this host allowed as by `brig run --allow`
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<Rule>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Propose the smallest list that would have allowed what was denied
///
/// Reads the denials that are on record for a session or a run. Shown as a diff; nothing is changed
/// without --apply. Addresses that are not public and hosts that are blocked are never proposed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox suggest                  of the last session or run that was denied something
  brig sandbox suggest build
  brig sandbox suggest build --apply")]
pub struct SuggestArgs {
    /// The session [default: the last that was denied something]
    pub session: Option<String>,
    /// Only of this agent
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Allow what is proposed
    #[arg(long)]
    pub apply: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show how often each allowed host was reached, and which never was
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox used
  brig sandbox used --json | jq -r '.unused[]' | xargs brig sandbox deny")]
pub struct UsedArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
