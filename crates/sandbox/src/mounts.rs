//! Which folders and files of the host a session may see. Paths are resolved first and compared
//! by subtree; what was checked is pinned by device and inode, so that a link swapped afterwards
//! leads nowhere.

mod below;
mod rules;
mod source;
mod target;

use std::path::{Path, PathBuf};

use crate::plan::CheckedMount;
use crate::{Error, Result, SessionConfig};

const MAX_MOUNTS: usize = 64;
const WORKSPACE: &str = "/workspace";

/// The folders of the host that a session may see.
#[derive(Debug)]
pub(crate) struct Places {
    pub mounts: Vec<CheckedMount>,
    pub workspace: Option<CheckedMount>,
    pub rootfs: Option<PathBuf>,
    pub python: Option<PathBuf>,
}

/// `state` is the folder of Brig's own state, which stays out of reach.
pub(crate) fn check(config: &SessionConfig, state: Option<&Path>) -> Result<Places> {
    if config.mounts.len() > MAX_MOUNTS {
        let problem = format!("more than {MAX_MOUNTS}");
        return Err(Error::InvalidConfig {
            what: "mounts",
            problem,
        });
    }
    let mut taken: Vec<PathBuf> = Vec::new();
    if config.workspace.is_some() {
        taken.push(WORKSPACE.into());
    }
    let mut mounts = Vec::with_capacity(config.mounts.len());
    for spec in &config.mounts {
        let target = target::check(&spec.target, &taken)?;
        taken.push(target.clone());
        mounts.push(source::check(&spec.source, state)?.mount(target, spec.writable));
    }
    let workspace = match &config.workspace {
        Some(path) => Some(source::check_folder(path, state)?.mount(WORKSPACE.into(), true)),
        None => None,
    };
    let rootfs = match &config.rootfs {
        Some(path) => Some(source::check_rootfs(path, state)?),
        None => None,
    };
    let python = match &config.python {
        Some(path) => Some(source::check_python(path, state)?),
        None => None,
    };
    Ok(Places {
        mounts,
        workspace,
        rootfs,
        python,
    })
}

pub(crate) fn may_show(folder: &Path, state: Option<&Path>) -> Result<()> {
    source::check_folder(folder, state).map(drop)
}

fn refuse<T>(path: &Path, problem: impl Into<String>) -> Result<T> {
    let path = path.display().to_string().escape_debug().to_string();
    Err(Error::MountRefused {
        path,
        problem: problem.into(),
    })
}

#[cfg(test)]
mod tests;
