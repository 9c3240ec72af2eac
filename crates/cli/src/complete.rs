//! Shell completion. The script of a shell asks this program for what may follow, so that sessions,
//! checkpoints, backends and aliases are those of this machine. Nothing is created or changed for that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::engine::{self, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use clap_complete::{CompleteEnv, Shell};

use crate::args::Cli;
use crate::backend::KINDS;
use crate::{escape, user};

/// Set by the scripts. Without it, a start costs no more than looking for it.
const VARIABLE: &str = "BRIG_COMPLETE";

/// Answers the script of a shell, and ends the process. Returns if nobody asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .bin("brig")
        .completer("brig")
        .shells(SHELLS)
        .complete();
}

const SHELLS: Shells<'static> = Shells(&[&PlainBash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Bash puts what it is told into the command line as it is. Code in a sandbox may have named a file
/// `a;command`, so what a shell would not read as one plain word is left out.
struct PlainBash;

impl EnvCompleter for PlainBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        Bash.write_registration(var, name, bin, completer, buf)
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        directory: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        // The script of bash sets which word is being typed, and what separates the answers.
        let given = |name| std::env::var(name).ok();
        let index = given("_CLAP_COMPLETE_INDEX").and_then(|index| index.parse().ok());
        let separator = given("_CLAP_IFS").unwrap_or_else(|| "\n".into());
        let all = engine::complete(command, words, index.unwrap_or_default(), directory)?;
        let all = all.iter().map(|one| one.get_value().to_string_lossy());
        let plain: Vec<_> = all.filter(|text| is_plain(text)).collect();
        write!(buf, "{}", plain.join(&separator))
    }
}

/// Whether a shell reads this as one word and changes nothing in it, except `~` to a home.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || "_-./:=@%+,~".contains(c),
        false => !c.is_whitespace() && !escape::is_harmful(c),
    };
    text.chars().all(plain)
}

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    if let Some(completer) = SHELLS.completer(&shell.to_string()) {
        // A vector takes everything.
        let _ = completer.write_registration(VARIABLE, "brig", "brig", "brig", &mut script);
    }
    script
}

/// Ids of sessions; with the agent where that is needed.
pub(crate) fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, names(current))
}

fn names(current: &OsStr) -> Vec<String> {
    let with_agent = current.to_string_lossy().contains('/');
    let all = on_disk();
    let name = |(agent, id): &(String, String)| {
        let shared = all.iter().any(|(other, same)| same == id && other != agent);
        match with_agent || shared {
            true => format!("{agent}/{id}"),
            false => id.clone(),
        }
    };
    all.iter().map(name).collect()
}

/// Local paths, and sessions with a colon.
pub(crate) fn copied(current: &OsStr) -> Vec<CompletionCandidate> {
    let sessions = names(current).into_iter().map(|name| format!("{name}:"));
    let mut candidates = matching(current, sessions);
    candidates.extend(PathCompleter::any().complete(current));
    candidates
}

/// Checkpoints of the session that was named before.
pub(crate) fn checkpoints(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let named = |(agent, id): &(String, String)| {
        words.contains(id) || words.contains(&format!("{agent}/{id}"))
    };
    let mut found = Vec::new();
    for (agent, id) in on_disk().into_iter().filter(named) {
        let Some(state) = brig_sandbox::state_dir() else {
            break;
        };
        let session = state.join("sessions").join(agent).join(id);
        let files = entries(&session.join("checkpoints")).into_iter();
        found.extend(files.filter_map(|file| file.strip_suffix(".json").map(str::to_owned)));
    }
    matching(current, found)
}

/// Agents that have sessions.
pub(crate) fn agents(current: &OsStr) -> Vec<CompletionCandidate> {
    let agents: BTreeSet<String> = on_disk().into_iter().map(|(agent, _)| agent).collect();
    matching(current, agents)
}

/// Kinds of backends, and those of the user's configuration.
pub(crate) fn backends(current: &OsStr) -> Vec<CompletionCandidate> {
    let kinds = KINDS.iter().map(|entry| entry.kind.name.to_owned());
    let config = user::readable();
    let own = config.backends().iter();
    let own = own.map(|(name, backend)| format!("{}:{name}", backend.kind));
    matching(current, kinds.chain(own))
}

/// Aliases, and files.
pub(crate) fn agent_files(current: &OsStr) -> Vec<CompletionCandidate> {
    let config = user::readable();
    let mut candidates = matching(current, config.aliases().keys().cloned());
    candidates.extend(policies(current));
    candidates
}

/// Tools of the user's configuration. Those of servers are not known without starting them.
pub(crate) fn tools(current: &OsStr) -> Vec<CompletionCandidate> {
    let config = user::readable();
    matching(current, config.tools().tools.keys().cloned())
}

/// Files that may be policies, and directories.
pub(crate) fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_policy = |path: &Path| {
        let ending = path.extension().and_then(OsStr::to_str);
        path.is_dir() || matches!(ending, Some("yaml" | "yml" | "json"))
    };
    PathCompleter::any().filter(is_policy).complete(current)
}

/// All sessions by the names of their directories: agent and id.
fn on_disk() -> Vec<(String, String)> {
    let Some(state) = brig_sandbox::state_dir() else {
        return Vec::new();
    };
    let sessions: PathBuf = state.join("sessions");
    let mut found = Vec::new();
    for agent in entries(&sessions) {
        let ids = entries(&sessions.join(&agent));
        found.extend(ids.into_iter().map(|id| (agent.clone(), id)));
    }
    found
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn matching(current: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let names = names.into_iter();
    let names = names.filter(|name| name.starts_with(&*current));
    names.map(CompletionCandidate::new).collect()
}
