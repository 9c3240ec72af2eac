use std::path::{Path, PathBuf};

use crate::plan::CheckedMount;
use crate::{Error, Result, SessionConfig};

/// The folders of the host that a session may see.
pub(crate) struct Places {
    pub mounts: Vec<CheckedMount>,
    pub workspace: Option<CheckedMount>,
    pub rootfs: Option<PathBuf>,
    pub python: Option<PathBuf>,
}

pub(crate) fn check(config: &SessionConfig, _state: Option<&Path>) -> Result<Places> {
    if let Some(mount) = config.mounts.first() {
        return Err(Error::MountRefused {
            path: mount.source.display().to_string(),
            problem: "not yet".into(),
        });
    }
    Ok(Places {
        mounts: Vec::new(),
        workspace: None,
        rootfs: config.rootfs.clone(),
        python: config.python.clone(),
    })
}
