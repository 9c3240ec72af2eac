//! Flags of `brig policy`.

use std::path::PathBuf;

use brig_policy::Compat;
use clap::{Args, Subcommand, ValueEnum};

use super::values;

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    Check(CheckArgs),
    Explain(ExplainArgs),
    Test(TestArgs),
    Diff(DiffArgs),
    Schema(SchemaArgs),
    Eval(EvalArgs),
}

/// Whose leniency a policy is read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Leniency {
    Agt,
}

#[derive(Args, Debug)]
pub struct CompatArgs {
    /// Accept what AGT accepts, with warnings: unknown keys, limits that are none, and a missing
    /// `defaults.action`, which then means allow
    #[arg(long, value_name = "WHOSE", value_enum)]
    pub compat: Option<Leniency>,
}

impl CompatArgs {
    pub fn compat(&self) -> Compat {
        match self.compat {
            None => Compat::Strict,
            Some(Leniency::Agt) => Compat::Agt,
        }
    }
}

/// Policies of folders.
#[derive(Args, Debug)]
pub struct FolderArgs {
    /// Decide by the policies of folders: the governance.yaml of DIR and of every folder on the
    /// way down to --policy-path
    #[arg(long, value_name = "DIR")]
    pub policy_root: Option<PathBuf>,
    /// The path, below --policy-root, that policies of folders are chosen for [default: the
    /// current folder]
    #[arg(long, value_name = "PATH", requires = "policy_root")]
    pub policy_path: Option<PathBuf>,
}

/// The policies that something is run under.
#[derive(Args, Debug)]
pub struct UnderArgs {
    /// Decide by this policy, and hold its limits; given several times, all of them hold
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "policy_root",
        help_heading = "Policy"
    )]
    pub policy: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Policy")]
    pub folder: FolderArgs,
    #[command(flatten, next_help_heading = "Policy")]
    pub compat: CompatArgs,
}

/// What a caller adds to what is asked.
#[derive(Args, Debug)]
pub struct FactArgs {
    /// Add a fact that the policy can ask about; a VALUE that is JSON is taken as such. What Brig
    /// states itself can't be replaced
    #[arg(long, visible_alias = "context", value_name = "KEY=VALUE", value_parser = values::variable,
        help_heading = "Policy")]
    pub fact: Vec<(String, String)>,
}

/// Say whether policies are sound, and all that is wrong with them
///
/// Exits with 0 if all of them are, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig policy check policy.yaml
  brig policy check --compat agt policies/*.yaml
  brig policy check --json policy.yaml | jq '.files[].problems'")]
pub struct CheckArgs {
    /// Policies, as YAML or (by the extension .json) JSON
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Say what a policy answers to a context, why, and what would change the answer
///
/// Shows every rule in the order in which they are tried, the limits that hold and where each of
/// them comes from, and what the backends of this machine can hold of it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A context is made of the facts that Brig states (agent_id, action, language, code, command, argv,
program, tool_name, host, port, path) and of those that a caller adds.

Examples:
  brig policy explain policy.yaml --fact code='import subprocess'
  brig policy explain policy.yaml --context '{\"action\": \"run\", \"command\": \"curl x\"}'
  brig policy explain policy.yaml --context request.json --fact agent_id=tester")]
pub struct ExplainArgs {
    /// Policies that hold together
    #[arg(
        value_name = "FILE",
        required_unless_present = "policy_root",
        conflicts_with = "policy_root"
    )]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Facts: a JSON object, a file that holds one, or one fact as with --fact
    #[arg(long, value_name = "JSON|FILE|KEY=VALUE")]
    pub context: Vec<String>,
    /// One fact. A VALUE that is JSON is taken as such, anything else as text
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::variable)]
    pub fact: Vec<(String, String)>,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Try out what is expected of a policy
///
/// Exits with 0 if every case holds, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
CASES is a file like this one, where `expect` is `allow`, `deny`, or any of `allowed`, `rule`,
`action` and `reason`:

  cases:
    - name: plain code runs
      context: {action: execute, code: \"print(1)\"}
      expect: allow
    - name: no shells
      context: {action: execute, code: \"import subprocess\"}
      expect: {allowed: false, rule: no-subprocess}

Examples:
  brig policy test policy.yaml policy.cases.yaml")]
pub struct TestArgs {
    /// The policy
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What is expected of it
    #[arg(value_name = "CASES")]
    pub cases: PathBuf,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Say what an agent may newly do under another policy, and what no longer
#[derive(Args, Debug)]
#[command(after_long_help = "\
Rules are compared by trying out what they speak of, one fact at a time: what is listed is a real
difference, but rules that speak of several facts together may differ in more.

Examples:
  brig policy diff old.yaml new.yaml
  brig policy diff --exit-code old.yaml new.yaml || echo 'needs a review'")]
pub struct DiffArgs {
    /// The policy so far
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The policy to be
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Exit with 1 if something may newly be done
    #[arg(long)]
    pub exit_code: bool,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print the JSON Schema of policies
#[derive(Args, Debug)]
#[command(after_long_help = "\
With it an editor completes and checks policies. For editors that use the YAML language server, the
first line of a policy can name it:

  # yaml-language-server: $schema=policy.schema.json

Examples:
  brig policy schema > policy.schema.json")]
pub struct SchemaArgs {}

/// Answer contexts, line by line, for comparison with another evaluator
///
/// Reads lines {\"id\", \"policies\": [...], \"context\": {...}} and writes, in the same order,
/// lines {\"id\", \"allowed\", \"matched_rule\", \"action\", \"reason\"}. Policies are read with
/// AGT's leniency; what can't be read is denied.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig policy eval --jsonl < questions.jsonl > answers.jsonl")]
pub struct EvalArgs {
    /// One JSON object on each line of standard input and output
    #[arg(long, required = true)]
    pub jsonl: bool,
}
