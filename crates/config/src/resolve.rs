//! All that a run of an agent needs, read once. Whoever needs a part of it is handed the part.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_policy::{Compat, Document, Problem};

use crate::agent::{AgentFile, PolicySource};
use crate::choice::{Choice, choose};
use crate::error::{Error, Result};
use crate::source::Source;
use crate::store::Store;
use crate::user::{UserConfig, check_alias};

/// A run of an agent, with everything decided that files decide.
#[derive(Clone, Debug)]
pub struct Run {
    pub agent: AgentFile,
    /// Where the agent file is.
    pub path: PathBuf,
    pub policy: Option<Arc<Document>>,
    pub user: UserConfig,
    pub choice: Choice,
    /// What the files should not have said.
    pub warnings: Vec<Problem>,
}

/// Finds the agent behind a path or an alias, and reads it, its policy and the user's configuration.
/// Any of them that can't be read refuses the run, even where the flag alone would have decided:
/// the files also say what may be reached.
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
    let (agent, said) = AgentFile::parse(&path.display().to_string(), &text)?;
    warnings.extend(said);
    let policy = match &agent.policy {
        None => None,
        Some(PolicySource::Inline(document)) => Some(document.clone()),
        Some(PolicySource::Path(policy)) => {
            let (document, said) = load(source, &beside(&path, policy))?;
            warnings.extend(said);
            Some(document)
        }
    };
    let choice = choose(
        flag,
        alias.and_then(|alias| alias.sandbox),
        agent.sandbox,
        user.sandbox(),
    );
    Ok(Run {
        agent,
        path,
        policy,
        user,
        choice,
        warnings,
    })
}

fn beside(agent: &Path, policy: &Path) -> PathBuf {
    agent.parent().unwrap_or(Path::new("")).join(policy)
}

fn load(source: &dyn Source, path: &Path) -> Result<(Arc<Document>, Vec<Problem>)> {
    let file = path.display().to_string();
    let text = source
        .read(path)
        .map_err(|error| Error::unreadable(path, error))?;
    let loaded = Document::load(&file, text, Compat::Strict)
        .map_err(|problems| Error::unsound(&file, problems))?;
    Ok((loaded.document, loaded.warnings))
}
