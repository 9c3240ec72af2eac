//! The loop: everything the guest waits for, in one place.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{Frame, FromGuest, Hello, Kind, MAX_DATA, Spawn, ToGuest};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::Failure;
use crate::channel::Channel;
use crate::files;
use crate::task::{Prepared, Stdin, Task};

/// No more is read from programs while this much waits to be sent.
const BACKLOG: usize = 1024 * 1024;

/// How long the guest waits after an execution before it prepares the next one: a sandbox for one
/// execution is gone by then.
const REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

pub fn run(channel: Channel, hello: Hello, handoff: Option<OwnedFd>) {
    let mut guest = Guest {
        channel,
        hello,
        handoff,
        spare: None,
        wants_spare: true,
        tasks: Vec::new(),
        uploads: BTreeMap::new(),
        downloads: Vec::new(),
        lingering: Vec::new(),
    };
    if guest.channel.flush().is_ok() {
        // While the outside hears that we are ready and gets its first order to us.
        guest.prepare_spare();
        while let Ok(true) = guest.turn() {}
    }
}

struct Upload {
    id: u32,
    file: Result<OwnedFd, Failure>,
    bytes: u64,
}

struct Download {
    id: u32,
    channel: u32,
    file: OwnedFd,
    bytes: u64,
}

struct Guest {
    channel: Channel,
    hello: Hello,
    /// Where keepers hand out who is to be asked.
    handoff: Option<OwnedFd>,
    /// What the next execution will use. Only while there is none: it counts as a process.
    spare: Option<Prepared>,
    wants_spare: bool,
    tasks: Vec<Task>,
    uploads: BTreeMap<u32, Upload>,
    downloads: Vec<Download>,
    /// Keepers whose executions are over but whose namespaces are still being taken down.
    lingering: Vec<(u32, OwnedFd)>,
}

/// What became ready.
enum Ready {
    Channel,
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
                Ready::Ended(task) => self.tasks[task].reap(),
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
        self.finish();
        self.channel.flush()?;
        Ok(true)
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut what = vec![Ready::Channel];
        let outgoing = if self.channel.has_outgoing() {
            PollFlags::OUT
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.channel.as_fd(),
            PollFlags::IN | outgoing,
        )];
        let takes_more = self.channel.backlog() < BACKLOG;
        let room_for = |download: &Download| self.channel.room(download.channel) > 0;
        let mut hurry = takes_more && self.downloads.iter().any(room_for);
        for (index, task) in self.tasks.iter().enumerate() {
            if !task.ended() {
                what.push(Ready::Ended(index));
                fds.push(PollFd::new(&task.pidfd, PollFlags::IN));
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
        for (_, pidfd) in &self.lingering {
            what.push(Ready::Lingering);
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let patience = match (hurry, self.at_rest()) {
            (true, _) => Some(&now),
            (false, true) => Some(&REST),
            (false, false) => None,
        };
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

    fn prepare_spare(&mut self) {
        self.wants_spare = false;
        // What fails now will fail again, and be reported, when it is needed.
        self.spare = Prepared::new(&self.hello, self.handoff.as_ref(), None).ok();
    }

    fn start(&mut self, spawn: Spawn) -> Result<Task, Failure> {
        let fits = |spare: &Prepared| spawn.terminal.is_none() && spare.is_alive();
        let prepared = match self.spare.take() {
            Some(spare) if fits(&spare) => spare,
            other => {
                self.lingering.extend(other.map(Prepared::dismiss));
                Prepared::new(&self.hello, self.handoff.as_ref(), spawn.terminal)?
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
                let file = files::create(base, &self.hello.workspace, &path, mode);
                self.uploads.insert(channel, Upload { id, file, bytes: 0 });
            }
            ToGuest::Get { id, path, channel } => match files::open(&self.hello.workspace, &path) {
                Ok((file, _)) => {
                    self.downloads.push(Download {
                        id,
                        channel,
                        file,
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
        let errno = failure.errno();
        self.channel.send(&FromGuest::Failed {
            id,
            step: failure.step,
            errno,
        });
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
            if let Ok(file) = &upload.file {
                match write_all(file, bytes) {
                    Ok(()) => upload.bytes += bytes.len() as u64,
                    Err(error) => {
                        upload.file = Err(Failure {
                            step: "write".into(),
                            error: error.into(),
                        });
                    }
                }
            }
        } else if let Some(stdin) = stdin_of(&mut self.tasks, channel) {
            stdin.push(bytes, &mut self.channel);
        }
    }

    fn end(&mut self, channel: u32) {
        if let Some(upload) = self.uploads.remove(&channel) {
            match upload.file {
                Ok(_) => self.channel.send(&FromGuest::Done {
                    id: upload.id,
                    bytes: upload.bytes,
                }),
                Err(failure) => self.failed(upload.id, failure),
            }
        } else if let Some(stdin) = stdin_of(&mut self.tasks, channel) {
            stdin.end(&mut self.channel);
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
            match rustix::io::read(&download.file, &mut buffer[..room]) {
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
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => {
                    let (id, errno) = (download.id, error.raw_os_error());
                    self.channel.forget(download.channel);
                    self.channel.send(&FromGuest::Failed {
                        id,
                        step: "read".into(),
                        errno,
                    });
                    done.push(index);
                }
            }
        }
        for index in done.into_iter().rev() {
            self.downloads.remove(index);
        }
    }

    fn finish(&mut self) {
        let mut index = 0;
        while let Some(task) = self.tasks.get_mut(index) {
            match task.farewell() {
                Some(message) => {
                    self.channel.send(&message);
                    self.wants_spare = true;
                    self.lingering
                        .extend(self.tasks.remove(index).into_keeper());
                }
                None => index += 1,
            }
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
