//! Where sessions and the audit log are.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brig_reason::ReasonCode;
use rustix::fs::Access;
use rustix::io::Errno;

use crate::failure::{Failure, describe};

/// `$XDG_STATE_HOME/brig`, usually `~/.local/state/brig`.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    brig_sandbox::state_dir().ok_or_else(|| {
        Failure::new(
            ReasonCode::StateNoHome,
            "cannot find a home directory for sessions and the audit log",
        )
        .with_hint("set HOME or XDG_STATE_HOME")
    })
}

/// The same, if this user may write there. It need not exist yet.
pub(crate) fn writable() -> Result<PathBuf, Failure> {
    let state = directory()?;
    of_this_user(&state)?;
    let nearest = state.ancestors().find(|path| path.exists());
    let nearest = nearest.unwrap_or(Path::new("/"));
    let may = match nearest.is_dir() {
        true => rustix::fs::access(nearest, Access::WRITE_OK | Access::EXEC_OK),
        false => Err(Errno::NOTDIR),
    };
    match may {
        Ok(()) => Ok(state),
        Err(error) => Err(unwritable(&state, nearest, &error.into())),
    }
}

/// Refuses to write for root into what belongs to the user who called sudo: the files would be root's.
pub(crate) fn of_this_user(directory: &Path) -> Result<(), Failure> {
    let caller = std::env::var("SUDO_UID").ok();
    let caller = caller.and_then(|uid| uid.parse::<u32>().ok());
    let Some(caller) = caller.filter(|uid| *uid != 0 && rustix::process::geteuid().is_root())
    else {
        return Ok(());
    };
    let owner = directory.ancestors().find_map(|path| path.metadata().ok());
    if owner.is_none_or(|owner| owner.uid() != caller) {
        return Ok(());
    }
    Err(Failure::new(
        ReasonCode::StateForeign,
        format!(
            "`{}` belongs to user {caller}, who called sudo: root would leave files there that this user can't use",
            directory.display()
        ),
    )
    .with_hint(
        "run it without sudo, or with `sudo -H`, or set XDG_STATE_HOME and XDG_CONFIG_HOME to directories of root",
    ))
}

fn unwritable(state: &Path, at: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        ReasonCode::StateUnwritable,
        format!(
            "cannot use `{}` for sessions and the audit log: `{}`: {}",
            state.display(),
            at.display(),
            describe(error)
        ),
    )
    .with_hint(format!(
        "set XDG_STATE_HOME to a directory that you may write to, or HOME, which is {}",
        std::env::var_os("HOME").map_or("not set".into(), |home| format!(
            "`{}`",
            home.to_string_lossy()
        ))
    ))
}

pub(crate) fn audit_directory(state: &Path) -> PathBuf {
    state.join("audit")
}
