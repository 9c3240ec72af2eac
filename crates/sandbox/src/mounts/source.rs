//! What of the host may be mounted.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, lstat, open, readlink};

use super::{below, refuse, rules};
use crate::Result;
use crate::plan::CheckedMount;

/// Something that exists and is harmless.
pub(super) struct Checked {
    path: PathBuf,
    folder: bool,
    device: u64,
    inode: u64,
}

impl Checked {
    pub fn mount(self, target: PathBuf, writable: bool) -> CheckedMount {
        let Self {
            path: source,
            device,
            inode,
            ..
        } = self;
        CheckedMount {
            source,
            target,
            writable,
            device,
            inode,
        }
    }
}

pub(super) fn check(given: &Path, state: Option<&Path>) -> Result<Checked> {
    let found = resolve(given)?;
    let path = &found.path;
    if !rules::SOURCE_HARMLESS
        .iter()
        .any(|harmless| path.starts_with(harmless))
    {
        for (tree, why) in rules::SOURCE_TREES {
            if path.starts_with(tree) {
                return refuse(path, *why);
            }
        }
    }
    for (folder, why) in rules::SOURCE_ITSELF {
        if path == Path::new(folder) {
            return refuse(path, *why);
        }
    }
    check_private(&found, state)?;
    Ok(found)
}

pub(super) fn check_folder(given: &Path, state: Option<&Path>) -> Result<Checked> {
    let found = check(given, state)?;
    if found.folder {
        Ok(found)
    } else {
        refuse(&found.path, "it is not a folder")
    }
}

/// A root file system is only read, so it may lie among the files of the system.
pub(super) fn check_rootfs(given: &Path, state: Option<&Path>) -> Result<PathBuf> {
    let found = resolve(given)?;
    if !found.folder {
        return refuse(&found.path, "it is not a folder");
    }
    check_private(&found, state)?;
    Ok(found.path)
}

/// An interpreter or a virtual environment. Links stay as they are: an environment is found by
/// the path its interpreter was called with.
pub(super) fn check_python(given: &Path, state: Option<&Path>) -> Result<PathBuf> {
    let found = resolve(given)?;
    let path = std::path::absolute(given).unwrap_or_else(|_| found.path.clone());
    if found.folder {
        check_private(&found, state)?;
        if !["bin/python3", "bin/python"]
            .iter()
            .any(|name| found.path.join(name).exists())
        {
            return refuse(
                &path,
                "it is not a virtual environment: there is no bin/python3 in it",
            );
        }
    }
    Ok(path)
}

/// Opens what the path leads to and asks the kernel for its name, so that name and inode belong
/// together.
fn resolve(given: &Path) -> Result<Checked> {
    let (stat, magic, path) = match look(given) {
        Ok(found) => found,
        Err(error) => return refuse(given, std::io::Error::from(error).to_string()),
    };
    let same = lstat(&path).is_ok_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino));
    if !path.is_absolute() || !same {
        return refuse(given, "it has no name that can be checked");
    }
    if let Some((_, name)) = rules::KERNEL_FILE_SYSTEMS
        .iter()
        .find(|(known, _)| *known == magic)
    {
        return refuse(&path, format!("it belongs to the kernel ({name})"));
    }
    let folder = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        FileType::Socket => return refuse(&path, "it is a socket"),
        FileType::BlockDevice | FileType::CharacterDevice => {
            return refuse(&path, "it is a device");
        }
        _ => return refuse(&path, "it is neither a folder nor a regular file"),
    };
    Ok(Checked {
        path,
        folder,
        device: stat.st_dev,
        inode: stat.st_ino,
    })
}

fn look(given: &Path) -> rustix::io::Result<(Stat, u64, PathBuf)> {
    let file = open(given, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let name = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    let magic = u64::from_ne_bytes(fstatfs(&file)?.f_type.to_ne_bytes());
    Ok((
        fstat(&file)?,
        magic,
        OsString::from_vec(name.into_bytes()).into(),
    ))
}

/// Nothing that holds secrets, and nothing above that.
fn check_private(found: &Checked, state: Option<&Path>) -> Result<()> {
    let path = &found.path;
    if path == Path::new("/") {
        return refuse(path, "it is the whole system");
    }
    if let Some(state) = state.and_then(|state| fs::canonicalize(state).ok())
        && overlap(path, &state)
    {
        return refuse(path, "Brig keeps its own state there");
    }
    for secret in rules::SECRETS.split_whitespace() {
        if has_part(path, Path::new(secret)) {
            return refuse(path, format!("`{secret}` holds secrets"));
        }
    }
    for mark in rules::HOME_MARKS {
        if found.folder && lstat(path.join(mark)).is_ok() {
            return refuse(
                path,
                format!("it contains `{mark}`; give a folder below it"),
            );
        }
    }
    if found.folder {
        match below::problem(path) {
            Ok(None) => {}
            Ok(Some(problem)) => return refuse(path, problem),
            Err(error) => return refuse(path, format!("its mounts can't be looked at: {error}")),
        }
    }
    for home in homes() {
        if home.starts_with(path) && home != Path::new("/") {
            let problem = format!("it contains the home folder `{}`", home.display());
            return refuse(path, format!("{problem}; give a folder below that"));
        }
        for secret in rules::SECRETS.split_whitespace() {
            // Also where a link leads: a secret may lie elsewhere.
            if let Ok(real) = fs::canonicalize(home.join(secret))
                && overlap(path, &real)
            {
                let problem = format!("it leads to `{secret}` of `{}`", home.display());
                return refuse(path, problem);
            }
        }
    }
    Ok(())
}

fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Whether the components of `part` follow one another somewhere in `path`.
fn has_part(path: &Path, part: &Path) -> bool {
    let part: Vec<_> = part.components().collect();
    let path: Vec<_> = path.components().collect();
    path.windows(part.len()).any(|window| window == part)
}

/// The caller's home, root's, and all in /home.
fn homes() -> Vec<PathBuf> {
    let mut homes = vec![PathBuf::from("/root")];
    homes.extend(
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute()),
    );
    homes.extend(home_of(rustix::process::getuid().as_raw()));
    if let Ok(entries) = fs::read_dir("/home") {
        homes.extend(entries.flatten().map(|entry| entry.path()));
    }
    let mut resolved: Vec<PathBuf> = homes
        .iter()
        .filter_map(|home| fs::canonicalize(home).ok())
        .collect();
    resolved.sort();
    resolved.dedup();
    resolved
}

fn home_of(uid: u32) -> Option<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2).and_then(|id| id.parse().ok()) == Some(uid))?;
    (fields.len() > 5).then(|| PathBuf::from(fields.swap_remove(5)))
}
