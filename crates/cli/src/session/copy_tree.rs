//! `brig session cp -r`: a directory in or out. Symbolic links are never followed, on either side: code
//! may have created them.

use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brig_linux::directory;
use brig_sandbox::backend::FileKind;
use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Session, Upload};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::copy::{Copied, exists, kind_inside, local};
use crate::failure::{self, Failure};
use crate::units;

/// More entries than this are not copied. Code decides how many there are.
const MOST_ENTRIES: usize = 100_000;
/// Directories that may be in one another.
const DEEPEST: usize = 100;

/// What was left out, which is told at the end.
#[derive(Default)]
struct LeftOut {
    links: usize,
    special: usize,
    names: usize,
    empty: usize,
}

impl LeftOut {
    fn tell(&self) {
        for (count, what) in [
            (self.links, "symbolic links"),
            (self.special, "sockets, pipes and devices"),
            (self.names, "entries whose names are not UTF-8"),
            (self.empty, "empty directories"),
        ] {
            if count > 0 {
                failure::note(&format!("{what} are not copied; left out: {count}"));
            }
        }
    }
}

/// A local directory, opened once, and what in it is not copied.
struct Source {
    root: OwnedFd,
    checked: CheckedMount,
}

impl Source {
    /// By the rules for mounts: what may not be mounted is not copied either.
    fn open(given: &Path) -> Result<Self, Failure> {
        let checked = brig_sandbox::check_mount(given, &[])?;
        let root = brig_input::open_directory_without_links(&checked.source);
        let root = root.map_err(|error| local(given, &error))?;
        let found = rustix::fs::fstat(&root).map_err(|error| local(given, &error.into()))?;
        if (found.st_dev, found.st_ino) != (checked.device, checked.inode) {
            return Err(Failure::usage(format!(
                "`{}` was replaced while it was being checked",
                given.display()
            )));
        }
        if !checked.hidden.is_empty() {
            let hidden = checked.hidden.iter().take(10);
            let names: Vec<String> = hidden
                .map(|hidden| format!("`{}`", hidden.path.display()))
                .collect();
            let more = match checked.hidden.len().saturating_sub(10) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            failure::hidden(&format!(
                "{}{more} in `{}` are not copied; copy such a file by its own path",
                names.join(", "),
                checked.source.display()
            ));
        }
        Ok(Self { root, checked })
    }

    fn is_hidden(&self, path: &Path) -> bool {
        let mut hidden = self.checked.hidden.iter();
        hidden.any(|hidden| path.starts_with(&hidden.path))
    }

    fn failed(&self, path: &Path, error: Errno) -> Failure {
        local(&self.checked.source.join(path), &error.into())
    }

    /// All regular files, by their paths below it, and the names directly in it.
    fn files(&self, left_out: &mut LeftOut) -> Result<Vec<(PathBuf, u32)>, Failure> {
        let (mut files, mut seen) = (Vec::new(), 0);
        let mut directories = vec![(PathBuf::new(), 0)];
        while let Some((path, depth)) = directories.pop() {
            let opened = match path.as_os_str().is_empty() {
                true => self.open_below(Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY),
                false => self.open_below(&path, OFlags::RDONLY | OFlags::DIRECTORY),
            };
            let opened = opened.map_err(|error| self.failed(&path, error))?;
            let names = directory::names(&opened);
            let names = names.map_err(|error| local(&self.checked.source.join(&path), &error))?;
            let empty = names.is_empty() && depth > 0;
            left_out.empty += usize::from(empty);
            for name in names {
                seen += 1;
                if seen > MOST_ENTRIES || depth > DEEPEST {
                    return Err(too_much());
                }
                let Ok(text) = name.to_str() else {
                    left_out.names += 1;
                    continue;
                };
                let below = path.join(text);
                if self.is_hidden(&below) {
                    continue;
                }
                let found =
                    look(opened.as_fd(), &name).map_err(|error| self.failed(&below, error))?;
                match FileType::from_raw_mode(found.st_mode) {
                    FileType::Directory => directories.push((below, depth + 1)),
                    FileType::RegularFile => files.push((below, found.st_mode & 0o777)),
                    FileType::Symlink => left_out.links += 1,
                    _ => left_out.special += 1,
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        // A FIFO that was put there meanwhile must not block.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        directory::open_beneath(&self.root, path, flags, Mode::empty())
    }

    fn file(&self, path: &Path) -> Result<tokio::fs::File, Failure> {
        let opened = self.open_below(path, OFlags::RDONLY);
        let opened = opened.map_err(|error| self.failed(path, error))?;
        let found = rustix::fs::fstat(&opened).map_err(|error| self.failed(path, error))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok(tokio::fs::File::from_std(File::from(opened))),
            _ => Err(self.failed(path, Errno::INVAL)),
        }
    }
}

fn look(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn too_much() -> Failure {
    Failure::usage(format!(
        "the directory has more than {MOST_ENTRIES} entries, or more than {DEEPEST} directories in one \
         another"
    ))
    .with_hint("copy a part of it, or use tar: brig session exec SESSION -- tar c DIR | tar x")
}

/// Copies a directory into a session: below a directory that exists, under its own name. `DIR/.` is what
/// is in it.
pub(crate) async fn upload(
    session: &Session,
    from: &Path,
    to: &str,
    force: bool,
) -> Result<Copied, Failure> {
    let source = Source::open(from)?;
    let only_contents = from.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let own_name = source
        .checked
        .source
        .file_name()
        .and_then(|name| name.to_str());
    let own_name = own_name.filter(|_| !only_contents);
    let target = target_inside(session, to, own_name, force).await?;
    let mut left_out = LeftOut::default();
    let files = source.files(&mut left_out)?;
    let inside = |path: &Path| match (target.as_str(), path.display()) {
        ("", path) => path.to_string(),
        (target, path) => format!("{target}/{path}"),
    };
    if only_contents && !force {
        for (path, _) in &files {
            let path = inside(path);
            if kind_inside(session, &path).await?.is_some() {
                return Err(exists(&path));
            }
        }
    }
    let uploads = files.iter().map(|(path, mode)| {
        Ok::<_, Failure>(Upload {
            path: inside(path),
            mode: *mode,
            content: Box::new(source.file(path)?),
        })
    });
    let bytes = session.upload_all(uploads).await?;
    left_out.tell();
    Ok(Copied {
        path: if target.is_empty() {
            ".".into()
        } else {
            target
        },
        bytes,
        files: Some(files.len()),
    })
}

/// Without an own name, the contents go into the directory itself.
async fn target_inside(
    session: &Session,
    to: &str,
    own_name: Option<&str>,
    force: bool,
) -> Result<String, Failure> {
    let mut target = to.trim_end_matches('/').to_owned();
    let mut found = match target.as_str() {
        "" => Some(FileKind::Directory),
        target => kind_inside(session, target).await?,
    };
    if let (Some(own_name), true) = (
        own_name,
        found == Some(FileKind::Directory) || to.ends_with('/'),
    ) {
        target = match target.as_str() {
            "" => own_name.to_owned(),
            target => format!("{target}/{own_name}"),
        };
        found = kind_inside(session, &target).await?;
        if found == Some(FileKind::Directory) && !force {
            return Err(exists(&target));
        }
    }
    match found {
        None | Some(FileKind::Directory) => Ok(target),
        Some(_) => Err(exists(&target)),
    }
}

/// Copies a directory out of a session, under a name that does not exist yet. It appears when it is
/// complete. Nothing in it is executable.
pub(crate) async fn download(session: &Session, from: &str, to: &Path) -> Result<Copied, Failure> {
    let own_name = from.trim_end_matches('/').rsplit('/').next();
    let own_name =
        own_name.filter(|name| !matches!(*name, "" | "." | "..") && from != "/workspace");
    let target = match (to.is_dir(), own_name) {
        (true, Some(name)) => to.join(name),
        _ => to.to_owned(),
    };
    let failed = |error: &std::io::Error| local(&target, error);
    if target.symlink_metadata().is_ok() {
        return Err(Failure::new(
            brig_reason::ReasonCode::FileExists,
            format!("`{}` already exists", target.display()),
        )
        .with_hint("a directory is copied out under a new name: give one"));
    }
    let name = target
        .file_name()
        .map(|name| CString::new(name.as_encoded_bytes()));
    let Some(Ok(name)) = name else {
        return Err(failed(&std::io::ErrorKind::InvalidInput.into()));
    };
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = brig_sandbox::follow(parent.unwrap_or(Path::new(".")))
        .and_then(brig_input::open_directory_without_links)
        .map_err(|error| failed(&error))?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()));
    let temporary = tempfile::Builder::new()
        .prefix(".brig-copy-")
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(&place)
        .map_err(|error| failed(&error))?;
    let temporary_name = temporary.path().file_name().unwrap_or_default().to_owned();
    let root = directory::open_directory(&parent, &*temporary_name);
    let root = root.map_err(|error| failed(&error.into()))?;
    let config = session.config();
    let mut tree = Download {
        session,
        target: &target,
        // The files of a host directory are not limited.
        most_bytes: match config.workspace {
            None => config.limits.disk_bytes.value,
            Some(_) => u64::MAX,
        },
        seen: 0,
        files: 0,
        bytes: 0,
        left_out: LeftOut::default(),
    };
    let from = if from.is_empty() { "." } else { from };
    tree.fill(from.trim_end_matches('/'), &root).await?;
    let (old, new) = (&*temporary_name, &*name);
    rustix::fs::renameat_with(&parent, old, &parent, new, RenameFlags::NOREPLACE)
        .map_err(|error| failed(&error.into()))?;
    // It has its own name now.
    let _ = temporary.keep();
    tree.left_out.tell();
    Ok(Copied {
        path: target.display().to_string(),
        bytes: tree.bytes,
        files: Some(tree.files),
    })
}

struct Download<'a> {
    session: &'a Session,
    target: &'a Path,
    /// What fits on the disk of the session. Files with holes and hard links add up to more, and would
    /// fill the disk here.
    most_bytes: u64,
    seen: usize,
    files: usize,
    bytes: u64,
    left_out: LeftOut,
}

impl Download<'_> {
    async fn fill(&mut self, from: &str, root: &OwnedFd) -> Result<(), Failure> {
        let mut directories = vec![(String::from("."), 0)];
        while let Some((path, depth)) = directories.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let into = directory::open_beneath(root, path.as_str(), flags, Mode::empty());
            let into = into.map_err(|error| self.failed(&path, error))?;
            for entry in self.session.list_files(&format!("{from}/{path}")).await? {
                self.seen += 1;
                if self.seen > MOST_ENTRIES || depth > DEEPEST {
                    return Err(too_much());
                }
                let Some(name) = plain_name(&entry.raw) else {
                    self.left_out.names += 1;
                    continue;
                };
                let below = format!("{path}/{name}");
                match entry.kind {
                    FileKind::Directory => {
                        rustix::fs::mkdirat(&into, name, Mode::from_raw_mode(0o777))
                            .map_err(|error| self.failed(&below, error))?;
                        directories.push((below, depth + 1));
                    }
                    FileKind::File => {
                        self.file(&format!("{from}/{below}"), &into, name).await?;
                    }
                    FileKind::Link => self.left_out.links += 1,
                    _ => self.left_out.special += 1,
                }
            }
        }
        Ok(())
    }

    async fn file(&mut self, path: &str, into: &OwnedFd, name: &str) -> Result<(), Failure> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(into, name, flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(|error| self.failed(path, error))?;
        let mut file = tokio::fs::File::from_std(File::from(file));
        self.bytes += self.session.download(path, &mut file).await?;
        if self.bytes > self.most_bytes {
            return Err(Failure::usage(format!(
                "the files are larger together than the disk of the session, {}: some have holes or hard \
                 links",
                units::size(self.most_bytes)
            ))
            .with_hint("copy a part of it, or single files"));
        }
        let flushed = tokio::io::AsyncWriteExt::flush(&mut file).await;
        flushed.map_err(|error| local(self.target, &error))?;
        self.files += 1;
        Ok(())
    }

    fn failed(&self, path: &str, error: Errno) -> Failure {
        local(&self.target.join(path), &error.into())
    }
}

/// A name from the sandbox that stays in its directory.
fn plain_name(raw: &[u8]) -> Option<&str> {
    let name = str::from_utf8(raw).ok()?;
    let plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    plain.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_the_sandbox_stays_in_its_directory() {
        assert_eq!(plain_name(b"a b"), Some("a b"));
        for wrong in [
            &b""[..],
            b".",
            b"..",
            b"a/b",
            b"../x",
            b"/x",
            b"a\0b",
            b"\xff",
        ] {
            assert_eq!(plain_name(wrong), None);
        }
    }
}
