//! Where sessions and their evidence live on disk.

use std::path::PathBuf;
use std::sync::Arc;

use brig_config::UserConfig;
use brig_sandbox::{Backend, Sandbox, SandboxBuilder};
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
    Ok(builder(backend)?.build()?)
}

/// Whose sessions reach what the user allows now, whatever was allowed when they were created.
pub fn sandbox_under(backend: Arc<dyn Backend>, user: &UserConfig) -> Result<Sandbox, Failure> {
    let layer = brig_config::user_layer(user);
    Ok(builder(backend)?.user_network(layer).build()?)
}

fn builder(backend: Arc<dyn Backend>) -> Result<SandboxBuilder, Failure> {
    let folder = folder()?;
    let recorder = evidence::recorder(&folder)?;
    Ok(Sandbox::builder(backend)
        .recorder(recorder)
        .state_dir(folder))
}
