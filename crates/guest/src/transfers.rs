//! Files that are being sent and received.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brig_linux::access::{AccessTimes, Time, now};
use brig_transfer::{Bounds, Compare, Evidence, Received, Receiver, Scope, Sender, Stamps};
use brig_wire::{Base, FromGuest, Hello, LISTING_PART, MAX_DATA, RootSource, Tree, Writers};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::mounts::unescape;
use crate::{Failure, Step, files};

/// The file system itself limits what is written.
const UNBOUNDED: Bounds = Bounds {
    entries: u64::MAX,
    bytes: u64::MAX,
};

/// A tick of the kernel's clock takes 10 ms at most.
const WAIT: Duration = Duration::from_millis(1);
const MOST_WAITS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Transfers {
    workspace: String,
    /// Where files are that need not be sent.
    cache: Option<String>,
    uploads: BTreeMap<u32, Upload>,
    downloads: Vec<Download>,
    /// What was received or sent of the saved tree, so that only changes are sent the next time.
    saved: Stamps,
    /// When something else began to write to it since.
    written_from: Option<Time>,
    /// Whether programs can't access files unseen.
    seen: bool,
    /// What the workspace's times of access tell, once it was needed.
    access_times: Option<AccessTimes>,
}

#[derive(Debug)]
struct Upload {
    id: u32,
    sink: Result<Sink, Failure>,
    bytes: u64,
}

#[derive(Debug)]
enum Sink {
    File(OwnedFd),
    Tree(Box<Receiver>),
}

#[derive(Debug)]
struct Download {
    id: u32,
    channel: u32,
    source: Source,
    bytes: u64,
}

#[derive(Debug)]
enum Source {
    File(OwnedFd),
    Tree(Box<Sender>),
}

impl Transfers {
    pub(crate) fn of(hello: &Hello) -> Self {
        let container = match &hello.root {
            RootSource::Container(container) => Some(container),
            RootSource::Setup(_) => None,
        };
        let cache = container.and_then(|container| container.cache.clone());
        // The filter refuses `O_NOATIME`. Only Linux itself is known to tell of mappings.
        let seen = container.is_some_and(|container| !container.own_kernel)
            && !hello.confine.seccomp.is_empty();
        Self {
            workspace: hello.workspace.clone(),
            cache,
            uploads: BTreeMap::new(),
            downloads: Vec::new(),
            saved: Stamps::default(),
            written_from: None,
            seen,
            access_times: None,
        }
    }

    /// Something is about to write to the files.
    pub(crate) fn begin_writing(&mut self) {
        self.written_from.get_or_insert_with(now);
    }

    pub(crate) fn put(&mut self, id: u32, channel: u32, base: Base, path: &str, mode: u32) {
        self.begin_writing();
        let sink = files::create(base, &self.workspace, path, mode).map(Sink::File);
        self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
    }

    pub(crate) fn fill(&mut self, id: u32, channel: u32, tree: Tree) {
        let receiver = match tree {
            Tree::Workspace => files::open_readable(&self.workspace).map(|directory| {
                let receiver = Receiver::adding(directory, UNBOUNDED);
                // If it can't be opened, the first file that is needed from it is missing.
                let cache = self.cache.as_deref().map(files::open_readable);
                match cache {
                    Some(Ok(cache)) => receiver.with_cache(cache),
                    _ => receiver,
                }
            }),
            Tree::Root => files::open_readable("/").and_then(|root| {
                let scope = changeable(&self.workspace)?;
                Ok(Receiver::within(scope, root, UNBOUNDED))
            }),
        };
        let sink = receiver.map(|receiver| Sink::Tree(receiver.into()));
        self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
    }

    pub(crate) fn get(&mut self, id: u32, channel: u32, path: &str) -> Result<(), Failure> {
        let (file, _) = files::open(&self.workspace, path)?;
        self.begin(id, channel, Source::File(file));
        Ok(())
    }

    pub(crate) fn save(
        &mut self,
        id: u32,
        channel: u32,
        tree: Tree,
        (fresh, writers): (bool, Writers),
    ) -> Result<(), Failure> {
        let written_from = self.written_from.take();
        let evidence = Evidence {
            compare: self.compare(tree, writers),
            written_from: written_from.unwrap_or_else(now),
        };
        let before = std::mem::take(&mut self.saved);
        let before = if fresh { Stamps::default() } else { before };
        let sender = match tree {
            Tree::Workspace => Sender::new(files::open_directory(&self.workspace)?, before),
            Tree::Root => {
                let scope = changeable(&self.workspace)?;
                Sender::within(scope, files::open_directory("/")?, before)
            }
        };
        let sender = sender.step("read the files")?.with_evidence(evidence);
        self.begin(id, channel, Source::Tree(sender.into()));
        Ok(())
    }

    fn compare(&mut self, tree: Tree, writers: Writers) -> Compare {
        match (writers, tree) {
            (Writers::None, _) => Compare::Nothing,
            (Writers::Later, Tree::Workspace) => match self.access_times() {
                AccessTimes::Unknown => Compare::Everything,
                times => Compare::Accessed(times),
            },
            // The root is a file system of the engine.
            (Writers::Later, Tree::Root) | (Writers::Any, _) => Compare::Everything,
        }
    }

    fn access_times(&mut self) -> AccessTimes {
        let (seen, workspace) = (self.seen, &self.workspace);
        *self.access_times.get_or_insert_with(|| {
            let workspace = seen.then(|| files::open_readable(workspace).ok()).flatten();
            let times = workspace.and_then(|workspace| AccessTimes::of(workspace).ok());
            times.unwrap_or_default()
        })
    }

    fn begin(&mut self, id: u32, channel: u32, source: Source) {
        self.downloads.push(Download {
            id,
            channel,
            source,
            bytes: 0,
        });
    }

    /// The owner has given up this transfer.
    pub(crate) fn cancel(&mut self, id: u32, channel: &mut Channel) {
        self.uploads.retain(|_, upload| upload.id != id);
        for ended in self.downloads.extract_if(.., |download| download.id == id) {
            channel.forget(ended.channel);
        }
    }

    /// Whether something could be sent now.
    pub(crate) fn could_send(&self, channel: &Channel) -> bool {
        let mut downloads = self.downloads.iter();
        downloads.any(|download| channel.room(download.channel) > 0)
    }

    /// Received bytes. `false` if the channel is not an upload.
    pub(crate) fn data(&mut self, number: u32, bytes: &[u8], channel: &mut Channel) -> bool {
        let Some(upload) = self.uploads.get_mut(&number) else {
            return false;
        };
        channel.grant(number, bytes.len());
        if let Ok(Sink::File(_)) = &upload.sink {
            self.written_from.get_or_insert_with(now);
        }
        if let Ok(sink) = &mut upload.sink {
            match sink.take(bytes) {
                Ok(()) => upload.bytes += bytes.len() as u64,
                Err(error) => upload.sink = Err(error).step("write"),
            }
        }
        true
    }

    /// The end of an upload. `false` if the channel is not one.
    pub(crate) fn end(&mut self, number: u32, channel: &mut Channel) -> bool {
        let Some(Upload { id, sink, bytes }) = self.uploads.remove(&number) else {
            return false;
        };
        match sink.and_then(Sink::finish) {
            Ok(received) => {
                if let Some(received) = received {
                    self.saved = received.stamps;
                    if self.seen {
                        wait_for_tick();
                    }
                    for files in received.checked.chunks(LISTING_PART) {
                        let files = files.to_vec();
                        channel.send(&FromGuest::Checked { id, files });
                    }
                }
                channel.send(&FromGuest::Done { id, bytes });
            }
            Err(failure) => channel.send_failure(id, failure),
        }
        true
    }

    /// Sends a piece of each download, while no more than `most` bytes wait to be sent.
    pub(crate) fn send(&mut self, channel: &mut Channel, most: usize) {
        let mut done = Vec::new();
        for (index, download) in self.downloads.iter_mut().enumerate() {
            let room = channel.room(download.channel).min(MAX_DATA);
            if room == 0 || channel.backlog() >= most {
                continue;
            }
            let mut buffer = [0; MAX_DATA];
            match download.source.read(&mut buffer[..room]) {
                Ok(0) => {
                    let (id, bytes) = (download.id, download.bytes);
                    channel.send_end(download.channel);
                    channel.send(&FromGuest::Done { id, bytes });
                    done.push(index);
                }
                Ok(count) => {
                    channel.send_data(download.channel, &buffer[..count]);
                    download.bytes += count as u64;
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => {
                    let step = "read".into();
                    channel.forget(download.channel);
                    channel.send_failure(download.id, Failure { step, error });
                    done.push(index);
                }
            }
        }
        for index in done.into_iter().rev() {
            if let Source::Tree(sender) = self.downloads.remove(index).source {
                self.saved = sender.finish();
            }
        }
    }
}

/// Without that, what was received in the tick in which a program starts would be compared.
fn wait_for_tick() {
    let received = now();
    // A bound, because clocks can be set back.
    for _ in 0..MOST_WAITS {
        if now() > received {
            return;
        }
        std::thread::sleep(WAIT);
    }
}

/// Everything but mounts. The workspace is a mount, and is included.
fn changeable(workspace: &str) -> Result<Scope, Failure> {
    let mounts = std::fs::read("/proc/self/mountinfo").step("read the list of mounts")?;
    let mounts = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
    let workspace = workspace.trim_matches('/').as_bytes();
    Ok(Scope::around(mounts.filter(|mount| mount != workspace)))
}

/// The mount point in a line of mountinfo, relative to the root.
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    let path = line.split(|byte| *byte == b' ').nth(4)?;
    Some(unescape(path.strip_prefix(b"/")?))
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

impl Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => Ok(rustix::io::read(file, buffer)?),
            Source::Tree(sender) => sender.read(buffer),
        }
    }
}

impl Sink {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => Ok(write_all(file, bytes)?),
            Sink::Tree(receiver) => receiver.take(bytes),
        }
    }

    /// The files of a whole tree.
    fn finish(self) -> Result<Option<Received>, Failure> {
        match self {
            Sink::Tree(receiver) if receiver.is_complete() => Ok(Some(receiver.finish())),
            Sink::Tree(_) => Err(io::Error::from(Errno::PROTO)).step("take the files"),
            Sink::File(_) => Ok(None),
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
