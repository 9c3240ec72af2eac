//! The loop: everything the guest waits for, in one place.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brig_transfer::{Bounds, Receiver, Sender, Stamps};
use brig_wire::{Frame, FromGuest, Hello, Kind, MAX_DATA, Spawn, ToGuest};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::task::{Prepared, Stdin, Task};
use crate::watch::Watch;
use crate::yard::{self, Yard};
use crate::{Failure, Step, files};

/// No more is read from programs while this much waits to be sent.
const BACKLOG: usize = 1024 * 1024;

/// How long the guest waits after an execution before it prepares the next one: a sandbox for one
/// execution is gone by then.
const REST: Duration = Duration::from_millis(5);

/// The file system itself says when it is full.
const UNBOUNDED: Bounds = Bounds {
    entries: u64::MAX,
    bytes: u64::MAX,
};

pub fn run(channel: Channel, hello: Hello, handoff: Option<OwnedFd>, yard: Option<Yard>) {
    let mut guest = Guest {
        channel,
        hello,
        handoff,
        yard,
        spare: None,
        wants_spare: true,
        tasks: Vec::new(),
        uploads: BTreeMap::new(),
        downloads: Vec::new(),
        lingering: Vec::new(),
        saved: Stamps::default(),
    };
    if guest.channel.flush().is_ok() {
        // While the outside hears that we are ready and gets its first order to us.
        guest.prepare_spare();
        while let Ok(true) = guest.turn() {}
    }
}

struct Upload {
    id: u32,
    sink: Result<Sink, Failure>,
    bytes: u64,
}

enum Sink {
    File(OwnedFd),
    Tree(Box<Receiver>),
}

struct Download {
    id: u32,
    channel: u32,
    source: Source,
    bytes: u64,
}

enum Source {
    File(OwnedFd),
    Tree(Box<Sender>),
}

struct Guest {
    channel: Channel,
    hello: Hello,
    /// To the outside.
    handoff: Option<OwnedFd>,
    /// What only a guest in a container has.
    yard: Option<Yard>,
    /// What the next execution will use. Only while there is none: it counts as a process.
    spare: Option<Prepared>,
    wants_spare: bool,
    tasks: Vec<Task>,
    uploads: BTreeMap<u32, Upload>,
    downloads: Vec<Download>,
    /// Keepers whose executions are over but whose namespaces are still being taken down.
    lingering: Vec<(u32, OwnedFd)>,
    /// What was sent of the workspace already.
    saved: Stamps,
}

/// What became ready.
enum Ready {
    Channel,
    Flush,
    Yard(yard::Awaited),
    Ended(usize),
    Report(usize),
    Lingering,
    Output(usize, usize),
    Input(usize),
}

impl Guest {
    /// Waits and serves once. `false`: the outside is gone.
    fn turn(&mut self) -> io::Result<bool> {
        let ready = self.wait()?;
        if ready.is_empty() && self.at_rest() {
            self.prepare_spare();
        }
        for ready in ready {
            match ready {
                Ready::Channel => {
                    if !self.channel.fill()? {
                        return Ok(false);
                    }
                    while let Some(frame) = self.channel.next_frame()? {
                        self.receive(frame)?;
                    }
                }
                Ready::Flush => {}
                Ready::Yard(awaited) => {
                    if let Some(yard) = &mut self.yard {
                        yard.ready(awaited, &self.tasks, &mut self.channel);
                    }
                }
                Ready::Ended(task) => self.tasks[task].reap(false),
                Ready::Report(task) => self.tasks[task].listen(),
                Ready::Lingering => self.lingering.retain(|(pid, _)| {
                    matches!(brig_linux::process::wait(Some(*pid), false), Ok(None))
                }),
                Ready::Output(task, stream) => {
                    let last = self.tasks[task].ended();
                    self.tasks[task].streams[stream].pump(&mut self.channel, last);
                }
                Ready::Input(task) => {
                    if let Some(stdin) = &mut self.tasks[task].stdin {
                        stdin.pump(&mut self.channel);
                    }
                }
            }
        }
        self.send_files();
        self.sweep();
        self.finish();
        self.channel.flush()?;
        Ok(true)
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut what = vec![Ready::Channel];
        let input = PollFd::from_borrowed_fd(self.channel.input(), PollFlags::IN);
        let mut fds = vec![input];
        if self.channel.has_outgoing() {
            what.push(Ready::Flush);
            let output = self.channel.output();
            fds.push(PollFd::from_borrowed_fd(output, PollFlags::OUT));
        }
        let takes_more = self.channel.backlog() < BACKLOG;
        let room_for = |download: &Download| self.channel.room(download.channel) > 0;
        let mut hurry = takes_more && self.downloads.iter().any(room_for);
        for (index, task) in self.tasks.iter().enumerate() {
            if !task.ended() {
                if let Some(pidfd) = &task.pidfd {
                    what.push(Ready::Ended(index));
                    fds.push(PollFd::new(pidfd, PollFlags::IN));
                }
                if !task.heard {
                    what.push(Ready::Report(index));
                    fds.push(PollFd::new(&task.status, PollFlags::IN));
                }
            }
            for (number, stream) in task.streams.iter().enumerate() {
                if let Some(source) = &stream.source
                    && stream.wants(&self.channel)
                    && takes_more
                {
                    what.push(Ready::Output(index, number));
                    fds.push(PollFd::new(source, PollFlags::IN));
                    hurry |= task.ended();
                }
            }
            if let Some(stdin) = &task.stdin
                && let Some(sink) = &stdin.sink
                && stdin.wants()
            {
                what.push(Ready::Input(index));
                fds.push(PollFd::new(sink, PollFlags::OUT));
            }
        }
        if let Some(yard) = &self.yard {
            for (awaited, fd, flags) in yard.awaited(&self.channel, takes_more) {
                what.push(Ready::Yard(awaited));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        for (_, pidfd) in &self.lingering {
            what.push(Ready::Lingering);
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let patience = if hurry {
            Some(Duration::ZERO)
        } else if self.at_rest() {
            Some(REST)
        } else if self.tasks.is_empty() {
            None
        } else {
            self.yard.as_ref().map(|yard| yard.patience(&self.tasks))
        };
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let patience = patience.as_ref();
        match rustix::event::poll(&mut fds, patience) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds
            .iter()
            .map(|fd| {
                fd.revents()
                    .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            })
            .zip(fds.iter().map(|fd| fd.revents().contains(PollFlags::OUT)))
            .map(|(readable, writable)| readable || writable)
            .collect();
        Ok(what
            .into_iter()
            .zip(ready)
            // The output of a task that has ended is read to its end without being announced.
            .filter(|(what, ready)| {
                *ready || matches!(what, Ready::Output(task, _) if self.tasks[*task].ended())
            })
            .map(|(what, _)| what)
            .collect())
    }

    fn at_rest(&self) -> bool {
        self.tasks.is_empty() && self.wants_spare
    }

    /// Where keepers hand out who is to be asked: outside, or in a container here.
    fn handoff(&self) -> Option<&OwnedFd> {
        let watch = self.yard.as_ref().and_then(|yard| yard.watch.as_ref());
        self.handoff.as_ref().or(watch.map(Watch::handoff))
    }

    fn prepare_spare(&mut self) {
        self.wants_spare = false;
        // What fails now will fail again, and be reported, when it is needed.
        self.spare = Prepared::new(&self.hello, self.handoff(), None).ok();
    }

    fn start(&mut self, spawn: Spawn) -> Result<Task, Failure> {
        let fits = |spare: &Prepared| spawn.terminal.is_none() && spare.is_alive();
        let prepared = match self.spare.take() {
            Some(spare) if fits(&spare) => spare,
            other => {
                self.lingering.extend(other.and_then(Prepared::dismiss));
                Prepared::new(&self.hello, self.handoff(), spawn.terminal)?
            }
        };
        Task::start(prepared, spawn)
    }

    fn receive(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Control => {
                self.obey(brig_wire::from_bytes(&frame.payload).map_err(io::Error::other)?);
            }
            Kind::Data => self.data(frame.channel, &frame.payload),
            Kind::End => self.end(frame.channel),
            Kind::Credit => {
                if let Some(amount) = frame.credit() {
                    self.channel.credited(frame.channel, amount);
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToGuest) {
        match message {
            ToGuest::Hello(_) => {}
            ToGuest::Spawn(spawn) => {
                let (id, scratch) = (spawn.id, spawn.scratch.clone());
                match self.start(*spawn) {
                    Ok(task) => self.tasks.push(task),
                    Err(failure) => {
                        if let Some(scratch) = scratch {
                            files::remove_scratch(&scratch);
                        }
                        let errno = failure.errno();
                        let step = failure.step;
                        self.channel
                            .send(&FromGuest::SpawnFailed { id, step, errno });
                    }
                }
            }
            ToGuest::Kill { id } => {
                if let Some(yard) = &mut self.yard {
                    yard.relay.drop_visitor(id, &mut self.channel);
                }
                self.with(id, |task| task.kill());
                self.uploads.retain(|_, upload| upload.id != id);
                for ended in self.downloads.extract_if(.., |download| download.id == id) {
                    self.channel.forget(ended.channel);
                }
            }
            ToGuest::Signal { id, signal } => self.with(id, |task| task.signal(signal)),
            ToGuest::Resize { id, rows, columns } => {
                self.with(id, |task| task.resize(rows, columns));
            }
            ToGuest::Put {
                id,
                base,
                path,
                mode,
                channel,
            } => {
                let sink = files::create(base, &self.hello.workspace, &path, mode).map(Sink::File);
                self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
            }
            ToGuest::Fill { id, channel } => {
                let root = files::open_whole(&self.hello.workspace);
                let sink = root.map(|root| Sink::Tree(Receiver::adding(root, UNBOUNDED).into()));
                self.uploads.insert(channel, Upload { id, sink, bytes: 0 });
            }
            ToGuest::Save { id, channel, fresh } => match self.save(fresh) {
                Ok(sender) => self.downloads.push(Download {
                    id,
                    channel,
                    source: Source::Tree(sender.into()),
                    bytes: 0,
                }),
                Err(failure) => self.failed(id, failure),
            },
            ToGuest::Find { id, names, folders } => {
                let paths = names.iter().map(|name| files::find(name, &folders));
                let paths = paths.collect();
                self.channel.send(&FromGuest::Found { id, paths });
            }
            ToGuest::Datagram { door, from, bytes } => {
                if let Some(yard) = &self.yard {
                    yard.relay.answer(door, from, &bytes);
                }
            }
            ToGuest::Get { id, path, channel } => match files::open(&self.hello.workspace, &path) {
                Ok((file, _)) => {
                    self.downloads.push(Download {
                        id,
                        channel,
                        source: Source::File(file),
                        bytes: 0,
                    });
                }
                Err(failure) => self.failed(id, failure),
            },
            ToGuest::List { id, path } => match files::list(&self.hello.workspace, &path) {
                Ok(entries) => self.listing(id, entries),
                Err(failure) => self.failed(id, failure),
            },
        }
    }

    fn save(&mut self, fresh: bool) -> Result<Sender, Failure> {
        let before = std::mem::take(&mut self.saved);
        let before = if fresh { Stamps::default() } else { before };
        let root = files::open_folder(&self.hello.workspace)?;
        Sender::new(root, before).step("read the workspace")
    }

    fn with(&self, id: u32, act: impl FnOnce(&Task)) {
        if let Some(task) = self
            .tasks
            .iter()
            .find(|task| task.id == id && !task.ended())
        {
            act(task);
        }
    }

    fn failed(&mut self, id: u32, failure: Failure) {
        failed(&mut self.channel, id, failure);
    }

    fn listing(&mut self, id: u32, entries: Vec<brig_wire::Entry>) {
        let parts: Vec<_> = entries
            .chunks(brig_wire::LISTING_PART)
            .map(<[_]>::to_vec)
            .collect();
        let count = parts.len();
        for (index, entries) in parts.into_iter().enumerate() {
            let last = index + 1 == count;
            self.channel.send(&FromGuest::Listing { id, entries, last });
        }
        if count == 0 {
            self.channel.send(&FromGuest::Listing {
                id,
                entries: Vec::new(),
                last: true,
            });
        }
    }

    fn data(&mut self, channel: u32, bytes: &[u8]) {
        if let Some(upload) = self.uploads.get_mut(&channel) {
            self.channel.grant(channel, bytes.len() as u32);
            if let Ok(sink) = &mut upload.sink {
                match sink.take(bytes) {
                    Ok(()) => upload.bytes += bytes.len() as u64,
                    Err(error) => upload.sink = Err(error).step("write"),
                }
            }
        } else if let Some(yard) = &mut self.yard
            && yard.relay.data(channel, bytes, &mut self.channel)
        {
        } else if let Some(stdin) = stdin_of(&mut self.tasks, channel) {
            stdin.push(bytes, &mut self.channel);
        }
    }

    fn end(&mut self, channel: u32) {
        if let Some(upload) = self.uploads.remove(&channel) {
            match upload.sink.and_then(Sink::finish) {
                Ok(()) => self.channel.send(&FromGuest::Done {
                    id: upload.id,
                    bytes: upload.bytes,
                }),
                Err(failure) => self.failed(upload.id, failure),
            }
        } else if let Some(stdin) = stdin_of(&mut self.tasks, channel) {
            stdin.end(&mut self.channel);
        } else if let Some(yard) = &mut self.yard {
            yard.relay.end(channel, &mut self.channel);
        }
    }

    fn send_files(&mut self) {
        let mut done = Vec::new();
        for (index, download) in self.downloads.iter_mut().enumerate() {
            let room = self.channel.room(download.channel).min(MAX_DATA);
            if room == 0 || self.channel.backlog() >= BACKLOG {
                continue;
            }
            let mut buffer = [0; MAX_DATA];
            match download.source.read(&mut buffer[..room]) {
                Ok(0) => {
                    let (id, bytes) = (download.id, download.bytes);
                    self.channel.send_end(download.channel);
                    self.channel.send(&FromGuest::Done { id, bytes });
                    done.push(index);
                }
                Ok(count) => {
                    self.channel.send_data(download.channel, &buffer[..count]);
                    download.bytes += count as u64;
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    let failure = Failure {
                        step: "read".into(),
                        error,
                    };
                    self.channel.forget(download.channel);
                    failed(&mut self.channel, download.id, failure);
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

    /// Ends what is left of executions that share a namespace with others.
    fn sweep(&mut self) {
        if self.tasks.iter().any(|task| task.orphans) {
            let spare = self.spare.as_ref().map(Prepared::keeper);
            yard::sweep(&mut self.tasks, spare);
        }
        if let Some(yard) = &mut self.yard
            && !self.tasks.is_empty()
            && let Some(usage) = yard.meter.glance()
        {
            self.channel.send(&FromGuest::Usage(usage));
        }
    }

    fn finish(&mut self) {
        let mut index = 0;
        while let Some(task) = self.tasks.get_mut(index) {
            match task.farewell() {
                Some(message) => {
                    // What it was stopped by must be known before its end is.
                    if let Some(usage) = self.yard.as_mut().and_then(|yard| yard.meter.look()) {
                        self.channel.send(&FromGuest::Usage(usage));
                    }
                    self.channel.send(&message);
                    self.wants_spare = true;
                    let id = self.tasks[index].id;
                    if let Some(watch) = self.yard.as_mut().and_then(|yard| yard.watch.as_mut()) {
                        watch.forget(id);
                    }
                    self.lingering
                        .extend(self.tasks.remove(index).into_keeper());
                }
                None => index += 1,
            }
        }
    }
}

fn failed(channel: &mut Channel, id: u32, failure: Failure) {
    let errno = failure.errno();
    let step = failure.step;
    channel.send(&FromGuest::Failed { id, step, errno });
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
                Err(io::Error::from(Errno::PROTO)).step("fill the workspace")
            }
            _ => Ok(()),
        }
    }
}

fn stdin_of(tasks: &mut [Task], channel: u32) -> Option<&mut Stdin> {
    tasks
        .iter_mut()
        .filter_map(|task| task.stdin.as_mut())
        .find(|stdin| stdin.channel == channel)
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
