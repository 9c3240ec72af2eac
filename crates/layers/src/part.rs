//! A folder beside the target where things are made before they get their name.

use std::ffi::{CStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use brig_linux::directory::open_directory;
use rustix::fs::{CWD, Mode, mkdirat, renameat};

use super::walk::{Kind, Meta, remove};

/// Made when it is first needed, removed at the end.
pub(super) struct Part {
    path: PathBuf,
    open: Option<OwnedFd>,
}

impl Part {
    pub(crate) fn beside(target: &Path) -> Self {
        let mut path = OsString::from(target);
        path.push(".part");
        Self {
            path: path.into(),
            open: None,
        }
    }

    pub(crate) fn open(&mut self) -> io::Result<BorrowedFd<'_>> {
        let opened = match self.open.take() {
            Some(opened) => opened,
            None => {
                clear(&self.path)?;
                mkdirat(CWD, &self.path, Mode::RWXU)?;
                open_directory(CWD, &self.path)?
            }
        };
        let opened: &OwnedFd = self.open.insert(opened);
        Ok(opened.as_fd())
    }

    /// Gives a made thing its name, in place of what had it before.
    pub(crate) fn place(
        &mut self,
        made: &CStr,
        target: &OwnedFd,
        name: &CStr,
        before: Option<&Meta>,
    ) -> io::Result<()> {
        if before.is_some_and(|before| before.kind == Kind::Folder) {
            remove(target, name)?;
        }
        Ok(renameat(self.open()?, made, target, name)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.open.take().is_some() {
            // What stays is removed before the next use.
            let _ = clear(&self.path);
        }
    }
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
