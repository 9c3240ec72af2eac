//! What of the host may be mounted.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, lstat, open, readlink};

use super::below::Mounts;
use super::{Known, links, refuse, rules};
use crate::Result;
use crate::directories::Private;
use crate::plan::CheckedMount;

/// Something that exists and is harmless.
pub(super) struct Checked {
    path: PathBuf,
    folder: bool,
    device: u64,
    inode: u64,
}

impl Checked {
    pub(super) fn mount(self, target: PathBuf, writable: bool) -> CheckedMount {
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
            hidden: Vec::new(),
            pinned: Vec::new(),
        }
    }
}

pub(super) fn check(given: &Path, known: &Known<'_>) -> Result<Checked> {
    let found = resolve(given)?;
    let mounts = mounts(&found.path)?;
    refuse_any(&found, &mounts, of_the_system)?;
    check_private(&found, known, &mounts)?;
    Ok(found)
}

/// Why a path belongs to the system, if it does.
fn of_the_system(path: &Path) -> Option<String> {
    let below = |tree: &&str| path.starts_with(tree);
    let harmless = rules::SOURCE_HARMLESS.iter().any(below);
    let mut trees = rules::SOURCE_TREES.iter();
    let tree = trees.find(|(tree, _)| !harmless && below(tree));
    let itself = || {
        let mut folders = rules::SOURCE_ITSELF.iter();
        folders.find(|(folder, _)| path == Path::new(folder))
    };
    tree.or_else(itself).map(|(_, why)| (*why).to_owned())
}

fn mounts(path: &Path) -> Result<Mounts> {
    match Mounts::read() {
        Ok(mounts) => Ok(mounts),
        Err(error) => refuse(path, format!("its mounts cannot be read: {error}")),
    }
}

/// Refuses what must not be mounted, by its own path or by another one: a bind mount shows the same
/// directory elsewhere.
fn refuse_any(
    found: &Checked,
    mounts: &Mounts,
    problem: impl Fn(&Path) -> Option<String>,
) -> Result<()> {
    if let Some(problem) = problem(&found.path) {
        return refuse(&found.path, problem);
    }
    for other in mounts.other_paths(&found.path) {
        if let Some(problem) = problem(&other) {
            let other = other.display();
            return refuse(
                &found.path,
                format!("it is another mount of `{other}`: {problem}"),
            );
        }
    }
    Ok(())
}

pub(super) fn check_folder(given: &Path, known: &Known<'_>) -> Result<Checked> {
    let found = check(given, known)?;
    if found.folder {
        Ok(found)
    } else {
        refuse(&found.path, "it is not a directory")
    }
}

/// A root file system is only read, so it may lie among the files of the system.
pub(super) fn check_rootfs(given: &Path, known: &Known<'_>) -> Result<Checked> {
    let found = resolve(given)?;
    if !found.folder {
        return refuse(&found.path, "it is not a directory");
    }
    check_private(&found, known, &mounts(&found.path)?)?;
    Ok(found)
}

fn described(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => crate::error::MISSING.into(),
        _ => error.to_string(),
    }
}

/// Opens what the path leads to and asks the kernel for its name, so that name and inode belong
/// together.
fn resolve(given: &Path) -> Result<Checked> {
    let named = match links::follow(given) {
        Ok(named) => named,
        Err(error) => return refuse(given, described(&error)),
    };
    let (stat, magic, path) = match look(&named) {
        Ok(found) => found,
        Err(error) => return refuse(given, described(&error.into())),
    };
    if path != named {
        return refuse(given, "it changed while it was being checked");
    }
    let same = lstat(&path).is_ok_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino));
    if !path.is_absolute() || !same {
        return refuse(given, "it has no path that can be checked");
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
        _ => return refuse(&path, "it is neither a directory nor a regular file"),
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
fn check_private(found: &Checked, known: &Known<'_>, mounts: &Mounts) -> Result<()> {
    let own: Vec<Private> = known.private.iter().map(Private::resolved).collect();
    let homes = homes();
    refuse_any(found, mounts, |path| {
        if path == Path::new("/") {
            return Some("it is the root of the system".to_owned());
        }
        if let Some(own) = own.iter().find(|own| own.overlaps(path)) {
            return Some(own.why.to_owned());
        }
        let mut secrets = rules::SECRETS.split_whitespace();
        let hidden = |secret: &&str| {
            has_part(path, Path::new(secret)) && !may_be_shown(secret, &found.path, known)
        };
        if let Some(secret) = secrets.find(hidden) {
            return Some(format!(
                "`{secret}` contains secrets; --show-secret PATH shows it"
            ));
        }
        let contains = |home: &&PathBuf| home.starts_with(path) && **home != Path::new("/");
        if let Some(home) = homes.iter().find(contains) {
            let problem = format!("it contains the home directory `{}`", home.display());
            return Some(format!("{problem}; use a directory below it"));
        }
        // Also where a link leads: a secret may lie elsewhere. What merely contains it is shown
        // without.
        let mut home_secrets = known.home_secrets().iter();
        let home_secret = home_secrets.find(|secret| {
            path.starts_with(&secret.real) && !may_be_shown(secret.name, &found.path, known)
        })?;
        let HomeSecret { home, name, .. } = home_secret;
        Some(format!("it leads to `{name}` of `{}`", home.display()))
    })?;
    // What is mounted below it is not its own place, and has other paths.
    let private = homes.iter().chain(own.iter().map(|own| &own.path));
    for private in private.filter(|private| **private != Path::new("/")) {
        let others = mounts.other_paths(private);
        if let Some(other) = others.iter().find(|other| other.starts_with(&found.path)) {
            let (other, private) = (other.display(), private.display());
            let problem = format!("it contains `{other}`, which is another mount of `{private}`");
            return refuse(&found.path, problem);
        }
    }
    match mounts.problem(&found.path) {
        Some(problem) if found.folder => refuse(&found.path, problem),
        _ => Ok(()),
    }
}

/// Brig's own files are shown to nobody.
fn may_be_shown(secret: &str, path: &Path, known: &Known<'_>) -> bool {
    !secret.ends_with("/brig") && known.shows(path)
}

/// A secret in a home.
pub(super) struct HomeSecret {
    home: PathBuf,
    name: &'static str,
    /// Where it really is.
    pub real: PathBuf,
}

impl HomeSecret {
    pub(super) fn path(&self) -> PathBuf {
        self.home.join(self.name)
    }
}

/// The secrets in the homes that are there.
pub(super) fn secrets_in_homes() -> Vec<HomeSecret> {
    let mut found = Vec::new();
    for home in homes() {
        for name in rules::SECRETS.split_whitespace() {
            if let Ok(real) = fs::canonicalize(home.join(name)) {
                let home = home.clone();
                found.push(HomeSecret { home, name, real });
            }
        }
    }
    found
}

/// Whether the components of `part` follow one another somewhere in `path`.
fn has_part(path: &Path, part: &Path) -> bool {
    let part: Vec<_> = part.components().collect();
    let path: Vec<_> = path.components().collect();
    path.windows(part.len()).any(|window| window == part)
}

/// The caller's home, root's, and all in /home.
pub(super) fn homes() -> Vec<PathBuf> {
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
