//! Where sessions and their evidence live on disk.

use std::path::PathBuf;
use std::sync::Arc;

use brig_sandbox::{Backend, Sandbox};
use etcetera::base_strategy::{BaseStrategy, Xdg};

use crate::evidence;
use crate::failure::Failure;

/// `$XDG_STATE_HOME/brig`, usually `~/.local/state/brig`.
pub fn folder() -> Result<PathBuf, Failure> {
    let strategy = Xdg::new().map_err(|_| {
        Failure::new(
            "state.no-home",
            "cannot find a home folder to keep sessions and evidence in",
        )
        .with_hint("set HOME or XDG_STATE_HOME")
    })?;
    Ok(strategy
        .state_dir()
        .unwrap_or_else(|| strategy.home_dir().join(".local/state"))
        .join("brig"))
}

pub fn sandbox(backend: Arc<dyn Backend>) -> Result<Sandbox, Failure> {
    let folder = folder()?;
    Ok(Sandbox::builder(backend)
        .recorder(evidence::recorder(&folder)?)
        .state_dir(folder)
        .build()?)
}
