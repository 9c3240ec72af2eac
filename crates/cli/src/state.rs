//! Where sessions and the audit log are.

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
