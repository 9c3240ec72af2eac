//! Files for an engine that takes no text: Podman opens the seccomp profile itself, and writes `/etc/hosts`
//! from the host's unless another one is mounted there.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brig_sandbox::{Error, Result};

use crate::own_directory::OwnDirectory;

/// The lookup of every name goes to the guest.
const RESOLV: &str = "nameserver 127.0.0.1\nsearch .\n";
const HOSTS: &str = "127.0.0.1\tlocalhost brig\n::1\tlocalhost\n";

const EMPTY: &str = "empty";
const SECCOMP: &str = "seccomp.json";
const MOUNTED: [(&str, &str); 2] = [("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")];

/// A directory with these files, made when it is first needed and removed with this.
#[derive(Debug, Default)]
pub(crate) struct EngineFiles(OnceLock<OwnDirectory>);

impl EngineFiles {
    pub(crate) fn directory(&self) -> Result<&Path> {
        if let Some(made) = self.0.get() {
            return Ok(made.path());
        }
        let made = make().map_err(|error| Error::io("make files for the engine", error))?;
        Ok(self.0.get_or_init(|| made).path())
    }
}

/// The seccomp profile in this directory.
pub(crate) fn seccomp(directory: &Path) -> PathBuf {
    directory.join(SECCOMP)
}

/// An empty directory in this one.
pub(crate) fn empty(directory: &Path) -> PathBuf {
    directory.join(EMPTY)
}

/// Files in this directory, and where in a container they are mounted.
pub(crate) fn mounted(directory: &Path) -> impl Iterator<Item = (PathBuf, &'static str)> {
    MOUNTED
        .into_iter()
        .map(|(name, target)| (directory.join(name), target))
}

/// Readable for everybody: the engine may run as another user, and containers do.
fn make() -> io::Result<OwnDirectory> {
    let directory = OwnDirectory::make("brig-engine-")?;
    let files = [
        (SECCOMP, brig_profile::ENGINE),
        ("hosts", HOSTS),
        ("resolv.conf", RESOLV),
    ];
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))?;
    }
    std::fs::create_dir(directory.path().join(EMPTY))?;
    let closed = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(directory.path().join(EMPTY), closed)?;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_can_read_them_and_they_go_with_their_owner() {
        let files = EngineFiles::default();
        let directory = files.directory().expect("a directory").to_owned();
        assert_eq!(files.directory().expect("the same"), directory);
        let all = mounted(&directory).map(|(path, _)| path);
        for path in all.chain([seccomp(&directory)]) {
            let mode = std::fs::metadata(&path).expect("a file").permissions();
            assert_eq!(mode.mode() & 0o777, 0o444, "{}", path.display());
        }
        drop(files);
        assert!(!directory.exists());
    }
}
