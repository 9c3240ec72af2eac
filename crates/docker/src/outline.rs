//! Which programs an image has, without running anything of it: its folders, its links, and the
//! beginnings of its executable files, kept in a folder of the host.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::CreateContainerOptionsBuilder;
use brig_sandbox::{Error, Result};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tar::EntryType;
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};

use crate::address::hex;
use crate::derived::GUEST;
use crate::engine::{Engine, failure};
use crate::image::Image;
use crate::leftovers::Leftovers;
use crate::owner::Owner;

/// As much of a file as says what starts it.
const BEGINNING: u64 = 4096;
/// Entries of an image that are looked at; more is refused.
const MOST: usize = 2_000_000;

/// The outlines that this process knows, by the id of the image.
#[derive(Debug, Default)]
pub struct Outlines(Mutex<HashMap<String, Arc<Outline>>>);

#[derive(Debug)]
pub struct Outline {
    path: PathBuf,
    /// Removed at the end, if nothing else is to keep it.
    _own: Option<TempDir>,
}

impl Outline {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Outlines {
    /// Made once for each image. With `state`, the next process finds it there.
    pub async fn of(
        &self,
        image: &Image,
        engine: &Engine,
        leftovers: &Leftovers,
        state: Option<&Path>,
    ) -> Result<Arc<Outline>> {
        let mut known = self.0.lock().await;
        if let Some(outline) = known.get(&image.id) {
            return Ok(Arc::clone(outline));
        }
        let failed = |error| Error::io("look for the programs of the image", error);
        let kept = state.map(|state| {
            let name = hex(&Sha256::digest(&image.id));
            state.join("images").join(&name[..32])
        });
        let outline = match kept {
            Some(path) if path.is_dir() => Outline { path, _own: None },
            Some(path) => {
                let folder = path.parent().unwrap_or(&path).to_owned();
                std::fs::create_dir_all(&folder).map_err(failed)?;
                let made = TempDir::with_prefix_in(".making-", &folder).map_err(failed)?;
                make(made.path(), image, engine, leftovers).await?;
                // Another process may have been faster; theirs is as good.
                match std::fs::rename(made.path(), &path) {
                    Err(_) if path.is_dir() => {}
                    renamed => renamed.map_err(failed)?,
                }
                Outline { path, _own: None }
            }
            None => {
                let made = TempDir::with_prefix("brig-image-").map_err(failed)?;
                make(made.path(), image, engine, leftovers).await?;
                Outline {
                    path: made.path().to_owned(),
                    _own: Some(made),
                }
            }
        };
        let outline = Arc::new(outline);
        known.insert(image.id.clone(), Arc::clone(&outline));
        Ok(outline)
    }
}

async fn make(into: &Path, image: &Image, engine: &Engine, leftovers: &Leftovers) -> Result<()> {
    const STEP: &str = "read the programs of the image";
    let staging = leftovers.name();
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        // Never run; an image may have no command of its own.
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(Vec::new()),
        labels: Some(Owner::of_process().labels()),
        network_disabled: Some(true),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new();
    let options = options.name(staging.as_str()).build();
    let created = engine.docker.create_container(Some(options), body);
    engine.ask(STEP, created).await?;

    let (pieces, waiting) = mpsc::channel(8);
    let folder = open_root(into).map_err(|error| Error::io(STEP, error))?;
    let reading = tokio::task::spawn_blocking(move || unpack(Pieces::new(waiting), &folder));
    let mut export = std::pin::pin!(engine.docker.export_container(staging.as_str()));
    let patience = engine.patience;
    while let Some(piece) = tokio::time::timeout(patience, export.next())
        .await
        .map_err(|_| failure(STEP, &bollard::errors::Error::RequestTimeoutError))?
    {
        let piece = piece.map_err(|trouble| failure(STEP, &trouble))?;
        if pieces.send(piece).await.is_err() {
            // Why it stopped is known in a moment.
            break;
        }
    }
    drop(pieces);
    let read = reading
        .await
        .unwrap_or_else(|stopped| Err(io::Error::other(stopped)));
    staging.remove().await?;
    read.map_err(|error| Error::io(STEP, error))
}

/// Bytes as they come.
struct Pieces {
    waiting: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Pieces {
    fn new(waiting: mpsc::Receiver<Bytes>) -> Self {
        Self {
            waiting,
            current: Bytes::new(),
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.waiting.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, FOLDER, Mode::empty())?)
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn unpack(archive: impl Read, root: &OwnedFd) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    for (count, entry) in archive.entries()?.enumerate() {
        if count > MOST {
            return Err(io::Error::other("the image has too many files"));
        }
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let Some((folder, name)) = place(root, &path)? else {
            continue;
        };
        let made = match kind {
            EntryType::Directory => rustix::fs::mkdirat(&folder, &name, Mode::RWXU),
            EntryType::Symlink => match entry.link_name()? {
                Some(target) => rustix::fs::symlinkat(target.as_ref(), &folder, &name),
                None => Ok(()),
            },
            EntryType::Link => match entry.link_name()? {
                Some(first) => link(root, &first, &folder, &name)?,
                None => Ok(()),
            },
            EntryType::Regular | EntryType::Continuous if entry.header().mode()? & 0o111 != 0 => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                match rustix::fs::openat(&folder, &name, flags, Mode::RWXU) {
                    Ok(file) => {
                        let beginning = &mut (&mut entry).take(BEGINNING);
                        io::copy(beginning, &mut std::fs::File::from(file))?;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            _ => Ok(()),
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What is not executable is not there.
fn link(
    root: &OwnedFd,
    first: &Path,
    folder: &OwnedFd,
    name: &Path,
) -> io::Result<rustix::io::Result<()>> {
    let Some((there, known)) = place(root, first)? else {
        return Ok(Ok(()));
    };
    let flags = rustix::fs::AtFlags::empty();
    Ok(
        match rustix::fs::linkat(&there, &known, folder, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            linked => linked,
        },
    )
}

/// The folder that a path is in, made if it is not there, and the name. Nothing for paths that lead
/// elsewhere.
fn place(root: &OwnedFd, path: &Path) -> io::Result<Option<(OwnedFd, PathBuf)>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Ok(None),
        }
    }
    let Some(last) = names.pop() else {
        return Ok(None);
    };
    let mut folder = root.try_clone()?;
    for name in names {
        let mut opened = rustix::fs::openat(&folder, name, FOLDER, Mode::empty());
        if let Err(Errno::NOENT) = opened {
            rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
            opened = rustix::fs::openat(&folder, name, FOLDER, Mode::empty());
        }
        folder = match opened {
            Ok(opened) => opened,
            Err(Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some((folder, PathBuf::from(last))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_has_programs_and_no_way_out() {
        let outer = tempfile::tempdir().expect("folder");
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).expect("folder");
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind: EntryType, mode: u32, link: &str, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(content.len() as u64);
            // As hostile as it can be: the crate itself would refuse some paths.
            let name = &mut header.as_gnu_mut().expect("gnu").name;
            name[..path.len()].copy_from_slice(path.as_bytes());
            if !link.is_empty() {
                header.set_link_name(link).expect("link");
            }
            header.set_cksum();
            builder.append(&header, content).expect("entry");
        };
        let long = vec![7; 10_000];
        add("usr/bin/", EntryType::Directory, 0o755, "", b"");
        add("usr/bin/tool", EntryType::Regular, 0o755, "", &long);
        add("usr/bin/again", EntryType::Link, 0o755, "usr/bin/tool", b"");
        add("usr/share/text", EntryType::Regular, 0o644, "", b"text");
        add("bin", EntryType::Symlink, 0o777, "usr/bin", b"");
        add("bin/through", EntryType::Regular, 0o755, "", b"x");
        add("out", EntryType::Symlink, 0o777, "..", b"");
        add("out/victim", EntryType::Regular, 0o755, "", b"x");
        add("../victim", EntryType::Regular, 0o755, "", b"x");
        let archive = builder.into_inner().expect("archive");
        unpack(archive.as_slice(), &open_root(&inner).expect("root")).expect("unpacked");
        let tool = std::fs::metadata(inner.join("usr/bin/tool")).expect("tool");
        assert_eq!(tool.len(), BEGINNING);
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&tool), 2);
        assert!(!inner.join("usr/share/text").exists());
        assert!(!inner.join("usr/bin/through").exists());
        assert!(inner.join("bin").is_symlink());
        assert_eq!(std::fs::read_dir(outer.path()).expect("outer").count(), 1);
    }
}
