//! Files on their way in and out.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use brig_transfer::{Bounds, Receiver, Scope, Sender, Stamps};
use brig_wire::{Base, FromGuest, MAX_DATA, Tree};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::{Failure, Step, files};

/// The file system itself says when it is full.
const UNBOUNDED: Bounds = Bounds {
    entries: u64::MAX,
    bytes: u64::MAX,
};

#[derive(Debug)]
pub struct Transfers {
    workspace: String,
    uploads: BTreeMap<u32, Upload>,
    downloads: Vec<Download>,
    /// What was sent of the tree that is saved.
    saved: Stamps,
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
    pub fn of(workspace: &str) -> Self {
        Self {
            workspace: workspace.to_owned(),
            uploads: BTreeMap::new(),
            downloads: Vec::new(),
            saved: Stamps::default(),
        }
    }

    pub fn put(&mut self, id: u32, channel: u32, base: Base, path: &str, mode: u32) {
        let sink = files::create(base, &self.workspace, path, mode).map(Sink::File);
        self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
    }

    pub fn fill(&mut self, id: u32, channel: u32, tree: Tree) {
        let receiver = match tree {
            Tree::Workspace => {
                files::open_whole(&self.workspace).map(|folder| Receiver::adding(folder, UNBOUNDED))
            }
            Tree::Root => files::open_whole("/").and_then(|root| {
                let scope = changeable(&self.workspace)?;
                Ok(Receiver::within(scope, root, UNBOUNDED))
            }),
        };
        let sink = receiver.map(|receiver| Sink::Tree(receiver.into()));
        self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
    }

    pub fn get(&mut self, id: u32, channel: u32, path: &str) -> Result<(), Failure> {
        let (file, _) = files::open(&self.workspace, path)?;
        self.begin(id, channel, Source::File(file));
        Ok(())
    }

    pub fn save(&mut self, id: u32, channel: u32, tree: Tree, fresh: bool) -> Result<(), Failure> {
        let before = std::mem::take(&mut self.saved);
        let before = if fresh { Stamps::default() } else { before };
        let sender = match tree {
            Tree::Workspace => Sender::new(files::open_folder(&self.workspace)?, before),
            Tree::Root => {
                let scope = changeable(&self.workspace)?;
                Sender::within(scope, files::open_folder("/")?, before)
            }
        };
        let sender = sender.step("read the files")?;
        self.begin(id, channel, Source::Tree(sender.into()));
        Ok(())
    }

    fn begin(&mut self, id: u32, channel: u32, source: Source) {
        self.downloads.push(Download {
            id,
            channel,
            source,
            bytes: 0,
        });
    }

    /// Nobody wants it any more.
    pub fn cancel(&mut self, id: u32, channel: &mut Channel) {
        self.uploads.retain(|_, upload| upload.id != id);
        for ended in self.downloads.extract_if(.., |download| download.id == id) {
            channel.forget(ended.channel);
        }
    }

    /// Whether something could be sent now.
    pub fn could_send(&self, channel: &Channel) -> bool {
        let mut downloads = self.downloads.iter();
        downloads.any(|download| channel.room(download.channel) > 0)
    }

    /// Bytes that came in; `false` if they are for somebody else.
    pub fn data(&mut self, number: u32, bytes: &[u8], channel: &mut Channel) -> bool {
        let Some(upload) = self.uploads.get_mut(&number) else {
            return false;
        };
        channel.grant(number, bytes.len() as u32);
        if let Ok(sink) = &mut upload.sink {
            match sink.take(bytes) {
                Ok(()) => upload.bytes += bytes.len() as u64,
                Err(error) => upload.sink = Err(error).step("write"),
            }
        }
        true
    }

    /// All has come in; `false` if that was for somebody else.
    pub fn end(&mut self, number: u32, channel: &mut Channel) -> bool {
        let Some(Upload { id, sink, bytes }) = self.uploads.remove(&number) else {
            return false;
        };
        match sink.and_then(Sink::finish) {
            Ok(()) => channel.send(&FromGuest::Done { id, bytes }),
            Err(failure) => channel.send_failure(id, failure),
        }
        true
    }

    /// Sends a piece of each that goes out, while no more than `most` waits to be sent.
    pub fn send(&mut self, channel: &mut Channel, most: usize) {
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
                Err(error) if is_passing(&error) => {}
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

/// Everything but what is mounted; the workspace is, and counts.
fn changeable(workspace: &str) -> Result<Scope, Failure> {
    let mounts = std::fs::read("/proc/self/mountinfo").step("read the list of mounts")?;
    let mounts = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
    let workspace = workspace.trim_matches('/').as_bytes();
    Ok(Scope::around(mounts.filter(|mount| mount != workspace)))
}

/// Where a line of mountinfo says that something is mounted, relative to the root.
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line
        .split(|byte| *byte == b' ')
        .nth(4)?
        .strip_prefix(b"/")?;
    let mut path = Vec::new();
    while let [byte, after @ ..] = rest {
        // A backslash and three octal digits stand for a byte that would be taken for a separator.
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| *byte == b'\\') {
            Some(escaped) => {
                path.push(escaped);
                rest = &after[3..];
            }
            None => {
                path.push(*byte);
                rest = after;
            }
        }
    }
    Some(path)
}

fn is_passing(error: &io::Error) -> bool {
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

    fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Tree(receiver) if !receiver.is_complete() => {
                Err(io::Error::from(Errno::PROTO)).step("take the files")
            }
            _ => Ok(()),
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
