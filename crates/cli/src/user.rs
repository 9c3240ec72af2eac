//! The user's configuration.

use std::path::{Path, PathBuf};

use brig_config::{Disk, Error, Store, UserConfig};
use brig_reason::ReasonCode;

use crate::failure::{self, Failure};
use crate::policy::load;
use crate::state;

/// `$XDG_CONFIG_HOME/brig/config.yaml`, usually `~/.config/brig/config.yaml`.
pub(crate) fn store() -> Result<Store, Failure> {
    let directory = brig_sandbox::config_dir().ok_or_else(|| {
        Failure::new(
            ReasonCode::StateNoHome,
            "cannot find a home directory for the configuration",
        )
        .with_hint("set HOME or XDG_CONFIG_HOME")
    })?;
    Ok(Store::new(directory.join("config.yaml")))
}

/// The same, to be changed by this user.
pub(crate) fn store_to_change() -> Result<Store, Failure> {
    let store = store()?;
    state::of_this_user(store.path())?;
    Ok(store)
}

/// Reads it, and shows its warnings.
pub(crate) fn load(store: &Store) -> Result<UserConfig, Failure> {
    let (config, warnings) = store.load(&Disk).map_err(failed)?;
    load::show(&warnings);
    Ok(config)
}

/// The configuration, or an empty one if it can't be read: for what decides nothing.
pub(crate) fn readable() -> UserConfig {
    let config = store().ok().and_then(|store| store.load(&Disk).ok());
    config.map_or_else(UserConfig::default, |(config, _)| config)
}

/// The policy that applies unless a flag names one.
pub(crate) fn default_policy(store: &Store, config: &UserConfig) -> Option<PathBuf> {
    let directory = store.path().parent().unwrap_or(Path::new(""));
    let policy = config.defaults().policy.as_ref()?;
    Some(directory.join(policy))
}

/// Shows all problems of a file.
pub(crate) fn failed(error: Error) -> Failure {
    if let Error::Invalid { problems, .. } = &error {
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
    if let Error::Unreadable { source, .. } = &error
        && source.kind() == std::io::ErrorKind::PermissionDenied
    {
        return failure.with_hint("set HOME or XDG_CONFIG_HOME to a directory of yours");
    }
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
