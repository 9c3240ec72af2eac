//! Flags of `brig sandbox`.

use std::path::PathBuf;

use brig_egress::Rule;
use clap::{Args, Subcommand};

/// Manage which hosts every sandbox may reach, and show which were reached
///
/// HOST is `host`, `*.domain` (every name below it, but not the domain itself), an address or a
/// network such as `10.0.0.0/8`, each with `:port` or `:*`. Without a port, an allowed host may be
/// reached on ports 80 and 443, and a blocked host on none.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The lists are in $XDG_CONFIG_HOME/brig/config.yaml (usually ~/.config/brig/config.yaml).
A host is allowed if the policy, the agent file, this list or --allow allows it, and denied
if it is blocked here.

Examples:
  brig sandbox allow pypi.org '*.pythonhosted.org'
  brig sandbox check pypi.org
  brig sandbox list
  brig sandbox block '*.pastebin.com'
  brig sandbox suggest")]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Allow every sandbox to reach these hosts
    ///
    /// All hosts are checked before anything is written.
    #[command(after_long_help = "\
Examples:
  brig sandbox allow pypi.org '*.pythonhosted.org'
  brig sandbox allow db.internal:5432/tcp 10.1.2.3:8080")]
    Allow(HostsArgs),
    /// Remove hosts from the allowlist
    ///
    /// A host that is not on the list is not an error. To deny a host that a policy or an agent
    /// file allows, use `brig sandbox block`.
    #[command(
        visible_alias = "rm",
        after_long_help = "\
Examples:
  brig sandbox deny pypi.org"
    )]
    Deny(HostsArgs),
    #[command(visible_alias = "ls")]
    List(ListHostsArgs),
    /// Block these hosts for every sandbox, even if another rule allows them
    #[command(after_long_help = "\
Examples:
  brig sandbox block '*.pastebin.com' 203.0.113.0/24")]
    Block(HostsArgs),
    /// Remove hosts from the blocklist
    #[command(after_long_help = "\
Examples:
  brig sandbox unblock '*.pastebin.com'")]
    Unblock(HostsArgs),
    Check(CheckHostArgs),
    Suggest(SuggestArgs),
    Used(UsedArgs),
}

#[derive(Args, Debug)]
pub(crate) struct HostsArgs {
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
pub(crate) struct ListHostsArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show whether a host may be reached, and which rule of which layer decides
///
/// Exits with 0 if it may, otherwise with 1. No name is looked up and no connection is made.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox check pypi.org
  brig sandbox check --policy policy.yaml api.example.com:8443
  brig sandbox check --for ./reviewer.yaml api.example.com")]
pub(crate) struct CheckHostArgs {
    /// A host and a port [default port: 443]
    #[arg(value_name = "HOST[:PORT]")]
    pub host: Rule,
    /// Apply the rules of this policy. If given several times, all policies apply
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// Apply the rules of this agent and of its policy
    #[arg(long = "for", value_name = "REF")]
    pub agent: Option<String>,
    /// Allow this host, as `brig run --allow` does
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<Rule>,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Suggest the smallest allowlist that would have allowed what was denied
///
/// Reads the recorded denials of the last run, or of a session, and prints a diff. Nothing is
/// changed without --apply. Private and loopback addresses, such as those of a package mirror, are
/// listed apart, and applied only with --private. Blocked hosts and addresses where clouds serve
/// credentials are never suggested.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox suggest                     for the last run
  brig sandbox suggest --apply
  brig sandbox suggest --apply --private   also private addresses
  brig sandbox suggest build               for all executions of a session")]
pub(crate) struct SuggestArgs {
    /// The session, or the session id of a run [default: only the last execution]
    pub session: Option<String>,
    /// Only this agent
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Allow the suggested hosts
    #[arg(long)]
    pub apply: bool,
    /// With --apply: also allow the private and loopback addresses that are listed
    #[arg(long, requires = "apply")]
    pub private: bool,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show how often each allowed host was reached, and which hosts were never reached
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig sandbox used
  brig sandbox used --json | jq -r '.unused[]' | xargs brig sandbox deny")]
pub(crate) struct UsedArgs {
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}
