//! Files of a guest that can't be reached from outside: copied in at the beginning, and out to a
//! folder beside the session's own whenever they are to be saved.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_transfer::{Bounds, Receiver, Sender, Stamps};
use brig_wire::{FromGuest, ToGuest, Tree};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use super::connection::Connection;
use super::inbox::Incoming;
use crate::layers::{self, MAX_ENTRIES};
use crate::{Error, Result};

/// How long the next piece may take, on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pieces that may wait for the disk.
const WAITING: usize = 8;

/// Where they are copied to.
#[derive(Debug)]
pub struct Shadow {
    tree: Tree,
    most_bytes: u64,
    /// Where the copy of what the guest sent last is, if it is whole.
    copy: Mutex<Option<Copy>>,
}

/// A folder beside those of a session, which may have lost its path by now.
#[derive(Debug)]
struct Copy {
    home: OwnedFd,
    identity: (u64, u64),
}

impl Copy {
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

impl Shadow {
    pub fn new(tree: Tree, most_bytes: u64) -> Self {
        Self {
            tree,
            most_bytes,
            copy: Mutex::new(None),
        }
    }

    /// See [`crate::Instance::save`].
    pub async fn save(&self, connection: &Connection, into: &Path) -> Result<()> {
        let mut copy = self.copy.lock().await;
        let beside = Copy::beside(into).map_err(failed)?;
        let before = copy.take();
        let fresh = before.is_none_or(|before| before.identity != beside.identity);
        let opened = prepare(&beside.path(), fresh).map_err(failed)?;
        let source = opened.try_clone().map_err(failed)?;
        self.receive(connection, opened, fresh).await?;
        *copy = Some(beside);
        let (into, limit) = (into.to_owned(), self.most_bytes);
        let mirror = move || layers::mirror(source.as_fd(), &into, false, limit).map(drop);
        tokio::task::spawn_blocking(mirror)
            .await
            .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
            .map_err(failed)
    }

    async fn receive(&self, connection: &Connection, into: OwnedFd, fresh: bool) -> Result<()> {
        let (id, channel) = (connection.number(), connection.number());
        let (mut inbox, mut route) = connection.open(id, &[channel], &[])?;
        let bounds = Bounds {
            entries: MAX_ENTRIES,
            bytes: self.most_bytes,
        };
        let (pieces, waiting) = mpsc::channel::<Bytes>(WAITING);
        // Timers of others must not wait for the disk.
        let mut writing = tokio::task::spawn_blocking(move || write(into, bounds, waiting));
        let tree = self.tree;
        connection.send(&ToGuest::Save {
            id,
            channel,
            tree,
            fresh,
        })?;
        loop {
            let Ok(incoming) = timeout(PATIENCE, inbox.recv()).await else {
                let seconds = PATIENCE.as_secs();
                let problem = format!("nothing has come for {seconds} seconds");
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, problem)));
            };
            match incoming {
                Some(Incoming::Data { bytes, .. }) => {
                    let length = bytes.len();
                    if pieces.send(bytes).await.is_err() {
                        // Why it stopped is known in a moment.
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

/// The copy is of no use to the next instance.
impl Drop for Shadow {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.get_mut().take() {
            // What stays is removed before the next use.
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

fn prepare(folder: &Path, fresh: bool) -> io::Result<OwnedFd> {
    if fresh {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(folder)?,
        }
    }
    open(folder)
}

fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
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

/// Gives a new guest what was saved.
pub async fn fill(connection: &Connection, tree: Tree, from: &Path) -> Result<()> {
    let fill = |error| Error::io("put the saved files back", error);
    let (id, channel) = (connection.number(), connection.number());
    let (mut inbox, mut route) = connection.open(id, &[], &[channel])?;
    connection.send(&ToGuest::Fill { id, channel, tree })?;
    let folder = open(from).map_err(fill)?;
    let (pieces, mut ready) = mpsc::channel::<io::Result<Vec<u8>>>(WAITING);
    tokio::task::spawn_blocking(move || read(folder, &pieces));
    while let Some(piece) = ready.recv().await {
        connection.send_data(channel, &piece.map_err(fill)?).await?;
    }
    connection.send_end(channel)?;
    let answer = inbox.recv().await;
    route.answered();
    match answer {
        Some(Incoming::Message(FromGuest::Done { .. })) => Ok(()),
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

/// Ends early if nobody takes it.
fn read(folder: OwnedFd, pieces: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut sender = match Sender::new(folder, Stamps::default()) {
        Ok(sender) => sender,
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
