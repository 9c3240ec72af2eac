//! Files of a guest that the host can't access: they are copied in at the start, and out to a directory
//! beside the session's own before they are saved.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_layers::{MAX_ENTRIES, Unchanged, link_tree, mirror};
use brig_linux::directory::open_directory;
use brig_sandbox::{Error, Result};
use brig_transfer::{Bounds, Cached, Receiver, Sender, Stamps};
use brig_wire::{FromGuest, ToGuest, Tree, Writers};
use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use super::connection::Connection;
use super::inbox::Incoming;

/// How long to wait for the next data, also on a busy machine.
const DATA_TIMEOUT: Duration = Duration::from_secs(60);
/// Pieces that may wait to be written.
const QUEUE: usize = 8;

/// The copy of a guest's files on the host.
#[derive(Debug)]
pub(super) struct FileCopy {
    tree: Tree,
    most_bytes: u64,
    known: Mutex<Known>,
}

/// What both the guest and the host have.
#[derive(Debug, Default)]
struct Known {
    /// Where the last complete copy is.
    copy: Option<CopyDirectory>,
    /// What the guest began with, until there is a copy. It does not change.
    initial: Option<PathBuf>,
}

/// A directory beside those of a session. By descriptor, because its path may have changed.
#[derive(Debug)]
struct CopyDirectory {
    home: OwnedFd,
    identity: (u64, u64),
}

impl CopyDirectory {
    fn beside(head: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let home = rustix::fs::open(head.parent().unwrap_or(head), flags, Mode::empty())?;
        let found = rustix::fs::fstat(&home)?;
        Ok(Self {
            home,
            identity: (found.st_dev, found.st_ino),
        })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/incoming", self.home.as_raw_fd()))
    }
}

impl FileCopy {
    /// `initial`: what the guest was filled with.
    pub(super) fn new(tree: Tree, most_bytes: u64, initial: Option<&Path>) -> Self {
        // With a whole root, some files are left as the image has them.
        let initial = initial.filter(|_| tree == Tree::Workspace);
        let known = Known {
            copy: None,
            initial: initial.map(Path::to_owned),
        };
        Self {
            tree,
            most_bytes,
            known: Mutex::new(known),
        }
    }

    /// See [`brig_sandbox::Instance::save`].
    pub(super) async fn save(
        &self,
        connection: &Connection,
        into: &Path,
        writers: Writers,
    ) -> Result<()> {
        let mut known = self.known.lock().await;
        let beside = CopyDirectory::beside(into).map_err(failed)?;
        let before = std::mem::take(&mut *known);
        let (copy, initial) = (before.copy, before.initial);
        let copied = copy.is_some_and(|copy| copy.identity == beside.identity);
        let initial = initial.as_deref();
        let (opened, fresh) = prepare(&beside.path(), copied, initial).map_err(failed)?;
        let source = opened.try_clone().map_err(failed)?;
        self.receive(connection, opened, fresh, writers).await?;
        known.copy = Some(beside);
        let (into, limit) = (into.to_owned(), self.most_bytes);
        // Only this process writes to the copy, so time stamps are reliable.
        let mirror =
            move || mirror(source.as_fd(), &into, false, limit, Unchanged::Time, None).map(drop);
        tokio::task::spawn_blocking(mirror)
            .await
            .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
            .map_err(failed)
    }

    async fn receive(
        &self,
        connection: &Connection,
        into: OwnedFd,
        fresh: bool,
        writers: Writers,
    ) -> Result<()> {
        let (id, channel) = (connection.number(), connection.number());
        let (mut inbox, mut route) = connection.open(id, &[channel], &[])?;
        let bounds = Bounds {
            entries: MAX_ENTRIES,
            bytes: self.most_bytes,
        };
        let (pieces, waiting) = mpsc::channel::<Bytes>(QUEUE);
        // In a thread, so that other tasks don't wait for the disk.
        let mut writing = tokio::task::spawn_blocking(move || write(into, bounds, waiting));
        let tree = self.tree;
        connection.send(&ToGuest::Save {
            id,
            channel,
            tree,
            fresh,
            writers,
        })?;
        loop {
            let Ok(incoming) = timeout(DATA_TIMEOUT, inbox.recv()).await else {
                let seconds = DATA_TIMEOUT.as_secs();
                let problem = format!("no data for {seconds} seconds");
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, problem)));
            };
            match incoming {
                Some(Incoming::Data { bytes, .. }) => {
                    let length = bytes.len();
                    if pieces.send(bytes).await.is_err() {
                        // The reason is in the result of the writer.
                        break;
                    }
                    connection.grant(channel, length)?;
                }
                Some(Incoming::End) => {}
                Some(Incoming::Message(FromGuest::Done { .. })) => {
                    route.answered();
                    break;
                }
                Some(Incoming::Message(FromGuest::Failed { step, errno, .. })) => {
                    route.answered();
                    let problem = io::Error::from_raw_os_error(errno);
                    return Err(failed(io::Error::other(format!("{step}: {problem}"))));
                }
                Some(other) => {
                    let problem = format!("unexpected answer: {}", other.name());
                    return Err(Error::Protocol(problem));
                }
                None => return Err(connection.lost()),
            }
        }
        drop(pieces);
        (&mut writing)
            .await
            .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
            .map_err(failed)
    }
}

/// The next instance can't use the copy.
impl Drop for FileCopy {
    fn drop(&mut self) {
        if let Some(copy) = self.known.get_mut().copy.take() {
            // If this fails, the rest is removed before the next use.
            let remove = move || drop(fs::remove_dir_all(copy.path()));
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(remove)),
                Err(_) => remove(),
            }
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("save the files", error)
}

/// Opens the copy, and says whether everything has to be sent again. The receiver replaces files and never writes
/// to them, so links to what the guest began with will do for what has not changed.
fn prepare(directory: &Path, copied: bool, initial: Option<&Path>) -> io::Result<(OwnedFd, bool)> {
    let mut fresh = !copied;
    if fresh {
        empty(directory)?;
        if let Some(initial) = initial {
            fresh = link_tree(initial, directory).is_err();
            if fresh {
                empty(directory)?;
            }
        }
    }
    Ok((open_directory(CWD, directory)?, fresh))
}

fn empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(directory),
    }
}

fn write(into: OwnedFd, bounds: Bounds, mut pieces: mpsc::Receiver<Bytes>) -> io::Result<()> {
    let mut receiver = Receiver::exact(into, bounds);
    while let Some(bytes) = pieces.blocking_recv() {
        receiver.take(&bytes)?;
    }
    if receiver.is_complete() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// When files of the cache were last changed, by their number.
pub type CheckedFiles = Vec<(u64, (i64, u32))>;

/// Sends the saved files to a new guest, which has some of them already. `None` if it does not have them.
pub(super) async fn fill(
    connection: &Connection,
    tree: Tree,
    from: &Path,
    cached: Cached,
) -> Result<Option<CheckedFiles>> {
    let most_checked = cached.len();
    let fill = |error| Error::io("put the saved files back", error);
    let (id, channel) = (connection.number(), connection.number());
    let (mut inbox, mut route) = connection.open(id, &[], &[channel])?;
    connection.send(&ToGuest::Fill { id, channel, tree })?;
    let directory = open_directory(CWD, from).map_err(|error| fill(error.into()))?;
    let (pieces, mut ready) = mpsc::channel::<io::Result<Vec<u8>>>(QUEUE);
    tokio::task::spawn_blocking(move || read(directory, cached, &pieces));
    while let Some(piece) = ready.recv().await {
        connection.send_data(channel, &piece.map_err(fill)?).await?;
    }
    connection.send_end(channel)?;
    let mut checked = CheckedFiles::new();
    let answer = loop {
        match inbox.recv().await {
            Some(Incoming::Message(FromGuest::Checked { files, .. }))
                if checked.len() + files.len() <= most_checked =>
            {
                checked.extend(files);
            }
            answer => break answer,
        }
    };
    route.answered();
    match answer {
        Some(Incoming::Message(FromGuest::Done { .. })) => Ok(Some(checked)),
        Some(Incoming::Message(FromGuest::Failed { errno, .. }))
            if most_checked > 0 && errno == Errno::STALE.raw_os_error() =>
        {
            Ok(None)
        }
        Some(Incoming::Message(FromGuest::Failed { step, errno, .. })) => {
            let problem = io::Error::from_raw_os_error(errno);
            Err(fill(io::Error::other(format!("{step}: {problem}"))))
        }
        Some(other) => Err(Error::Protocol(format!(
            "unexpected answer: {}",
            other.name()
        ))),
        None => Err(connection.lost()),
    }
}

/// Ends early if the receiver is gone.
fn read(directory: OwnedFd, cached: Cached, pieces: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut sender = match Sender::new(directory, Stamps::default()) {
        Ok(sender) => sender.with_cached(cached),
        Err(error) => return drop(pieces.blocking_send(Err(error))),
    };
    loop {
        let mut buffer = vec![0; brig_wire::MAX_DATA];
        match sender.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                buffer.truncate(count);
                if pieces.blocking_send(Ok(buffer)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return drop(pieces.blocking_send(Err(error))),
        }
    }
}
