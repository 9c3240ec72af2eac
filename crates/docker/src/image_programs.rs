//! The programs of an image, without running any of them: its directories, its links, and the beginnings of
//! its executable files, unpacked into a host directory.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use brig_layers::hex;
use brig_linux::directory::open_directory;
use brig_sandbox::{Error, Result};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tar::EntryType;
use tokio::sync::{Mutex, mpsc};

use crate::derived::GUEST;
use crate::engine::{Engine, failure};
use crate::image::Image;
use crate::own_directory::OwnDirectory;
use crate::owner::ContainerOwner;
use crate::removals::Removals;

/// How much of a file is needed to know its interpreter.
const BEGINNING: u64 = 4096;
/// The most entries of an image.
const MOST: usize = 2_000_000;

/// By the id of the image.
#[derive(Debug, Default)]
pub(crate) struct ImageProgramsCache(Mutex<HashMap<String, Arc<ImagePrograms>>>);

#[derive(Debug)]
pub(crate) struct ImagePrograms {
    path: PathBuf,
    /// Removed when this is dropped, if there is no state directory.
    _own: Option<OwnDirectory>,
}

impl ImagePrograms {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl ImageProgramsCache {
    /// Unpacked once for each image. With `state`, other processes use it too.
    pub(crate) async fn of(
        &self,
        image: &Image,
        engine: &Engine,
        removals: &Removals,
        state: Option<&Path>,
    ) -> Result<Arc<ImagePrograms>> {
        let mut known = self.0.lock().await;
        if let Some(programs) = known.get(&image.id) {
            return Ok(Arc::clone(programs));
        }
        let failed = |error| Error::io("look for the programs of the image", error);
        let kept = state.map(|state| {
            let name = hex(&Sha256::digest(&image.id));
            state.join("images").join(&name[..32])
        });
        let programs = match kept {
            Some(path) if path.is_dir() => ImagePrograms { path, _own: None },
            Some(path) => {
                let folder = path.parent().unwrap_or(&path).to_owned();
                std::fs::create_dir_all(&folder).map_err(failed)?;
                let made = OwnDirectory::make_in(&folder, ".making-").map_err(failed)?;
                make(made.path(), image, engine, removals).await?;
                // Another process may have been faster. Its result is the same.
                match std::fs::rename(made.path(), &path) {
                    Err(_) if path.is_dir() => {}
                    renamed => renamed.map_err(failed)?,
                }
                ImagePrograms { path, _own: None }
            }
            None => {
                let made = OwnDirectory::make("brig-image-").map_err(failed)?;
                make(made.path(), image, engine, removals).await?;
                ImagePrograms {
                    path: made.path().to_owned(),
                    _own: Some(made),
                }
            }
        };
        let programs = Arc::new(programs);
        known.insert(image.id.clone(), Arc::clone(&programs));
        Ok(programs)
    }
}

async fn make(into: &Path, image: &Image, engine: &Engine, removals: &Removals) -> Result<()> {
    const STEP: &str = "read the programs of the image";
    let staging = removals.name();
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        // Never run, but required if the image has no command.
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(Vec::new()),
        labels: Some(ContainerOwner::of_process().labels()),
        network_disabled: Some(true),
        // Podman does not read the line above.
        host_config: Some(HostConfig {
            network_mode: Some("none".into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new();
    let options = options.name(staging.as_str()).build();
    let created = engine.docker.create_container(Some(options), body);
    engine.ask(STEP, created).await?;

    let (pieces, waiting) = mpsc::channel(8);
    let folder = open_root(into).map_err(|error| Error::io(STEP, error))?;
    let reading = tokio::task::spawn_blocking(move || unpack(ChannelReader::new(waiting), &folder));
    let mut export = std::pin::pin!(engine.docker.export_container(staging.as_str()));
    let patience = engine.patience;
    while let Some(piece) = tokio::time::timeout(patience, export.next())
        .await
        .map_err(|_| failure(STEP, &bollard::errors::Error::RequestTimeoutError))?
    {
        let piece = piece.map_err(|trouble| failure(STEP, &trouble))?;
        if pieces.send(piece).await.is_err() {
            // The reason is in the result of the reader.
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

/// Reads bytes from a channel.
struct ChannelReader {
    waiting: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl ChannelReader {
    fn new(waiting: mpsc::Receiver<Bytes>) -> Self {
        Self {
            waiting,
            current: Bytes::new(),
        }
    }
}

impl Read for ChannelReader {
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
    Ok(open_directory(CWD, path)?)
}

fn unpack(archive: impl Read, root: &OwnedFd) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    for (count, entry) in archive.entries()?.enumerate() {
        if count > MOST {
            return Err(io::Error::other("the image has too many files"));
        }
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let Some((folder, name)) = parent(root, &path)? else {
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

/// A hard link. Files that are not executable were not unpacked.
fn link(
    root: &OwnedFd,
    first: &Path,
    folder: &OwnedFd,
    name: &Path,
) -> io::Result<rustix::io::Result<()>> {
    let Some((there, known)) = parent(root, first)? else {
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

/// The directory of a path, created if it is missing, and the name. `None` for a path that leads out of the
/// root.
fn parent(root: &OwnedFd, path: &Path) -> io::Result<Option<(OwnedFd, PathBuf)>> {
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
        let mut opened = open_directory(&folder, name);
        if let Err(Errno::NOENT) = opened {
            rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
            opened = open_directory(&folder, name);
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
    fn an_image_is_unpacked_with_its_programs_and_never_outside() {
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
