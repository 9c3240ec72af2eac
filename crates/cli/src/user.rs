//! The user's configuration: where it is, and what becomes of a run when it can't be read.

use std::path::Path;

use brig_config::{Disk, Error, Store, UserConfig};
use brig_sandbox::SessionConfig;
use etcetera::base_strategy::{BaseStrategy, Xdg};

use crate::failure::{self, Failure};
use crate::policy::load;

/// `$XDG_CONFIG_HOME/brig/config.yaml`, usually `~/.config/brig/config.yaml`.
pub fn store() -> Result<Store, Failure> {
    let strategy = Xdg::new().map_err(|_| {
        Failure::new(
            "state.no-home",
            "cannot find a home folder with a configuration",
        )
        .with_hint("set HOME or XDG_CONFIG_HOME")
    })?;
    Ok(Store::new(strategy.config_dir().join("brig/config.yaml")))
}

/// Reads it, once.
pub fn load(store: &Store) -> Result<UserConfig, Failure> {
    let (config, warnings) = store.load(&Disk).map_err(failed)?;
    load::show(&warnings);
    Ok(config)
}

/// Shows all that is wrong with a file.
pub fn failed(error: Error) -> Failure {
    if let Error::Unsound { problems, .. } = &error {
        load::show(problems);
    }
    let message = match &error {
        Error::Unreadable { file, source } => {
            format!("cannot read `{file}`: {}", failure::describe(source))
        }
        Error::Unwritable { file, source } => {
            format!("cannot write `{file}`: {}", failure::describe(source))
        }
        other => other.to_string(),
    };
    let failure = Failure::new(error.code(), message);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// Who can write to the configuration opens the network of the next run: no sandbox sees it.
pub fn keep_out(config: &SessionConfig, store: &Store) -> Result<(), Failure> {
    let Some(folder) = (store.path().parent()).and_then(|folder| folder.canonicalize().ok()) else {
        return Ok(());
    };
    let mounts = config.mounts.iter().map(|mount| &mount.source);
    let shown = mounts.chain(&config.workspace).chain(&config.rootfs);
    for source in shown {
        let overlap = |path: &Path| path.starts_with(&folder) || folder.starts_with(path);
        if source.canonicalize().is_ok_and(|path| overlap(&path)) {
            return Err(Failure::new(
                "input.mount",
                format!(
                    "mount `{}` is refused: the configuration of Brig is there",
                    source.display()
                ),
            ));
        }
    }
    Ok(())
}
