//! Flags of `brig policy`.

use std::path::{Path, PathBuf};

use brig_policy::Compat;
use brig_sandbox::PolicyFiles;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;

use super::values;
use crate::complete;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(CheckArgs),
    Explain(ExplainArgs),
    Test(TestArgs),
    Diff(DiffArgs),
    Schema(SchemaArgs),
    Eval(EvalArgs),
}

/// Another parser whose leniency applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Leniency {
    Agt,
}

#[derive(Args, Debug)]
pub(crate) struct CompatArgs {
    /// Accept what AGT accepts, with warnings: unknown keys, invalid limits, and a missing
    /// `defaults.action`, which then means allow
    #[arg(long, value_name = "TOOL", value_enum)]
    pub compat: Option<Leniency>,
}

impl CompatArgs {
    pub(crate) fn compat(&self) -> Compat {
        match self.compat {
            None => Compat::Strict,
            Some(Leniency::Agt) => Compat::Agt,
        }
    }
}

/// The policies of directories.
#[derive(Args, Debug)]
pub(crate) struct PolicyDirArgs {
    /// Apply the policies of directories: the governance.yaml of DIR and of every directory on
    /// the way down to --policy-path
    #[arg(long, value_name = "DIR")]
    pub policy_root: Option<PathBuf>,
    /// The path below --policy-root whose directory policies apply [default: the current
    /// directory]
    #[arg(long, value_name = "PATH", requires = "policy_root")]
    pub policy_path: Option<PathBuf>,
}

impl PolicyDirArgs {
    /// The policies of directories if a root was given, else these files.
    pub(crate) fn or_files(&self, files: &[PathBuf]) -> Result<PolicyFiles, Failure> {
        let Some(root) = &self.policy_root else {
            return Ok(PolicyFiles::new(files));
        };
        let path = self.policy_path.as_deref().unwrap_or(Path::new("."));
        Ok(PolicyFiles::in_directory(root, path)?)
    }
}

/// The policies that apply to a run.
#[derive(Args, Debug)]
pub(crate) struct RunPolicyArgs {
    /// Apply this policy and enforce its limits. If given several times, all policies apply
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "policy_root",
        help_heading = "Policy",
        add = ArgValueCompleter::new(complete::policies)
    )]
    pub policy: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Policy")]
    pub directory: PolicyDirArgs,
    #[command(flatten, next_help_heading = "Policy")]
    pub compat: CompatArgs,
}

impl RunPolicyArgs {
    /// The policies of the flags, or else the user's default.
    pub(crate) fn files(&self, default: Option<PathBuf>) -> Result<PolicyFiles, Failure> {
        if self.policy.is_empty() && self.directory.policy_root.is_none() {
            return Ok(PolicyFiles::new(default));
        }
        self.directory.or_files(&self.policy)
    }
}

/// Facts that a caller adds.
#[derive(Args, Debug)]
pub(crate) struct FactArgs {
    /// Add a fact that policy rules can use. A VALUE that is valid JSON is read as JSON. Facts that
    /// Brig itself states cannot be replaced
    #[arg(long, visible_alias = "context", value_name = "KEY=VALUE", value_parser = values::variable,
        help_heading = "Policy")]
    pub fact: Vec<(String, String)>,
}

/// Check policies and list every problem
///
/// Exits with 0 if all of them are valid, otherwise with 1.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig policy check policy.yaml
  brig policy check --compat agt policies/*.yaml
  brig policy check --json policy.yaml | jq '.files[].problems'")]
pub(crate) struct CheckArgs {
    /// Policies, as YAML or (by the extension .json) JSON
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show what a policy decides for a context, why, and what would change the decision
///
/// Shows every rule in the order of evaluation, the effective limits and where each comes from, and
/// what the backends on this machine can enforce.
#[derive(Args, Debug)]
#[command(after_long_help = "\
A context consists of the facts that Brig states (agent_id, action, language, code, command,
argv, program, tool_name, host, port, path) and of the facts that a caller adds.

Examples:
  brig policy explain policy.yaml --fact code='import subprocess'
  brig policy explain policy.yaml --context '{\"action\": \"run\", \"command\": \"curl x\"}'
  brig policy explain policy.yaml --context request.json --fact agent_id=tester")]
pub(crate) struct ExplainArgs {
    /// Policies that apply together
    #[arg(
        value_name = "FILE",
        required_unless_present = "policy_root",
        conflicts_with = "policy_root"
    )]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub directory: PolicyDirArgs,
    /// Facts: a JSON object, a file that contains one, or one fact as with --fact
    #[arg(long, value_name = "JSON|FILE|KEY=VALUE")]
    pub context: Vec<String>,
    /// One fact. A VALUE that is valid JSON is read as JSON, anything else as text
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::variable)]
    pub fact: Vec<(String, String)>,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Run test cases against a policy
///
/// Exits with 0 if every case passes, otherwise with 1.
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
pub(crate) struct TestArgs {
    /// The policy
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The test cases
    #[arg(value_name = "CASES")]
    pub cases: PathBuf,
    #[command(flatten)]
    pub compat: CompatArgs,
    /// Print one JSON object and nothing else on stdout
    #[arg(long)]
    pub json: bool,
}

/// Show what another policy newly allows and what it no longer allows
#[derive(Args, Debug)]
#[command(after_long_help = "\
Rules are compared by trying the values that they mention, one fact at a time.
Every listed difference is real, but rules that combine several facts may differ in more ways.

Examples:
  brig policy diff old.yaml new.yaml
  brig policy diff --exit-code old.yaml new.yaml || echo 'needs a review'")]
pub(crate) struct DiffArgs {
    /// The old policy
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The new policy
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Exit with 1 if the new policy allows something that the old one did not
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
Editors can use it to complete and check policies.
For the YAML language server, name it in the first line of a policy:

  # yaml-language-server: $schema=policy.schema.json

Examples:
  brig policy schema > policy.schema.json")]
pub(crate) struct SchemaArgs {}

/// Evaluate contexts line by line, for comparison with another evaluator
///
/// Reads lines {\"id\", \"policies\": [...], \"context\": {...}} and writes, in the same order,
/// lines {\"id\", \"allowed\", \"matched_rule\", \"action\", \"reason\"}. Policies are read as AGT
/// reads them; input that cannot be read is denied.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  brig policy eval --jsonl < questions.jsonl > answers.jsonl")]
pub(crate) struct EvalArgs {
    /// One JSON object on each line of standard input and output
    #[arg(long, required = true)]
    pub jsonl: bool,
}
