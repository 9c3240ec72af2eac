//! Reads all files that a run of an agent needs, each once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_egress::Layer;
use brig_hosts::Rule;
use brig_policy::Document;
use brig_schema::{Compat, Problem};

use crate::agent::{AgentFile, PolicySource};
use crate::choice::{By, Choice, SandboxSettings, choose};
use crate::consent::relative_to_here;
use crate::error::{Error, Result};
use crate::network::layers;
use crate::source::Source;
use crate::store::Store;
use crate::trust::Identity;
use crate::user::{UserConfig, check_alias};

/// A run of an agent, with everything that its files decide.
#[derive(Clone, Debug)]
pub struct Run {
    pub agent: AgentFile,
    /// Where the agent file is.
    pub path: PathBuf,
    pub policy: Option<Arc<Document>>,
    pub user: UserConfig,
    pub choice: Choice,
    /// What the user agrees to by trusting the agent file.
    pub identity: Identity,
    /// Warnings about the files.
    pub warnings: Vec<Problem>,
}

impl Run {
    /// The files that decide about it, beside the user's own.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let policy = match &self.agent.policy {
            Some(PolicySource::Path(policy)) => Some(beside(&self.path, policy)),
            _ => None,
        };
        std::iter::once(self.path.clone()).chain(policy)
    }
}

/// Finds the agent behind a path or an alias, and reads it, its policy and the user's configuration.
/// Any of them that can't be read refuses the run, even where the flag alone would have decided:
/// the files also say what may be reached. An agent file that would turn the sandbox off alone, or by
/// its alias, is refused unless the user trusts it as it is.
pub fn resolve(
    source: &dyn Source,
    store: &Store,
    reference: &str,
    flag: Option<bool>,
) -> Result<Run> {
    let (user, mut warnings) = store.load(source)?;
    let alias = user.aliases().get(reference);
    let path = alias.map_or_else(|| PathBuf::from(reference), |alias| alias.path.clone());
    let text = source.read(&path).map_err(|error| {
        let unknown = alias.is_none() && error.kind() == io::ErrorKind::NotFound;
        match unknown && check_alias(reference).is_ok() {
            true => Error::NoAgent(reference.to_owned()),
            false => Error::unreadable(&path, error),
        }
    })?;
    let (agent, found) = AgentFile::parse(&path.display().to_string(), &text)?;
    warnings.extend(found);
    let (mut policy, mut policy_text) = (None, None);
    match &agent.policy {
        None => {}
        Some(PolicySource::Inline(document)) => policy = Some(document.clone()),
        Some(PolicySource::Path(file)) => {
            let file = beside(&path, file);
            let text = (source.read(&file)).map_err(|error| Error::unreadable(&file, error))?;
            let (document, found) = load(&file, text.clone())?;
            warnings.extend(found);
            (policy, policy_text) = (Some(document), Some(text));
        }
    }
    let choice = choose(SandboxSettings {
        flag,
        alias: alias.and_then(|alias| alias.sandbox),
        user: user.sandbox(),
        agent_file: agent.sandbox,
    });
    let relative = policy.iter().flat_map(|policy| relative_to_here(policy));
    let relative: Vec<PathBuf> = relative.collect();
    let identity = Identity::new(&path, &text, policy_text.as_deref(), &relative);
    if choice.needs_trust() && !store.trusts(source, &identity)? {
        return Err(Error::Untrusted {
            file: path.display().to_string(),
            wants: match choice.by {
                By::Alias => "is not trusted as it is now, and its alias runs it without a sandbox",
                _ => "wants to run without a sandbox",
            }
            .into(),
        });
    }
    Ok(Run {
        agent,
        path,
        policy,
        user,
        choice,
        identity,
        warnings,
    })
}

fn beside(agent: &Path, policy: &Path) -> PathBuf {
    agent.parent().unwrap_or(Path::new("")).join(policy)
}

fn load(path: &Path, text: Vec<u8>) -> Result<(Arc<Document>, Vec<Problem>)> {
    let file = path.display().to_string();
    let loaded = Document::load(&file, text, Compat::Strict)
        .map_err(|problems| Error::invalid(&file, problems))?;
    Ok((loaded.document, loaded.warnings))
}

impl Run {
    /// The network rules of the agent file, the user and this run (`allow`: its flags). Refuses what
    /// only the user may allow.
    pub fn network_layers(
        &self,
        source: &dyn Source,
        store: &Store,
        allow: &[Rule],
    ) -> Result<Vec<Layer>> {
        self.check_addresses(source, store, allow)?;
        Ok(layers(&self.agent.network_allowlist, &self.user, allow))
    }

    /// Refuses addresses of this machine, its network or its cloud that only the agent file and
    /// its policy open: neither the user's lists, nor `allow` (the flags of this run), nor the
    /// user's trust in the file stand behind them.
    fn check_addresses(&self, source: &dyn Source, store: &Store, allow: &[Rule]) -> Result<()> {
        let policy = self
            .policy
            .iter()
            .flat_map(|policy| policy.network_allowlist());
        let asked = self.agent.network_allowlist.iter();
        let asked = asked.chain(policy.map(|given| &given.value));
        let by_user = |rule: &Rule| {
            self.user
                .allow()
                .iter()
                .chain(allow)
                .any(|own| own.covers(rule))
        };
        let mut alone = asked.filter(|rule| !by_user(rule));
        let Some((rule, class)) = alone.find_map(|rule| Some((rule, rule.opens()?))) else {
            return Ok(());
        };
        if store.trusts(source, &self.identity)? {
            return Ok(());
        }
        Err(Error::Untrusted {
            file: self.path.display().to_string(),
            wants: format!("allows `{rule}`, a {class} address"),
        })
    }
}
