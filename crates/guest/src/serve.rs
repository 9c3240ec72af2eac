//! The loop: everything the guest waits for, in one place.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use brig_wire::{Frame, FromGuest, Hello, Kind, Spawn, ToGuest};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::task::{Prepared, Stdin, Task};
use crate::transfers::Transfers;
use crate::watch::Watch;
use crate::yard::{self, Yard};
use crate::{Failure, files};

/// No more is read from programs while this much waits to be sent.
const BACKLOG: usize = 1024 * 1024;

/// How long the guest waits after an execution before it prepares the next one: a sandbox for one
/// execution is gone by then.
const REST: Duration = Duration::from_millis(5);

pub fn run(channel: Channel, hello: Hello, handoff: Option<OwnedFd>, yard: Option<Yard>) {
    let transfers = Transfers::of(&hello.workspace);
    let mut guest = Guest {
        channel,
        hello,
        handoff,
        yard,
        spare: None,
        wants_spare: true,
        tasks: Vec::new(),
        transfers,
        lingering: Vec::new(),
    };
    if guest.channel.flush().is_ok() {
        // While the outside hears that we are ready and gets its first order to us.
        guest.prepare_spare();
        while let Ok(true) = guest.turn() {}
    }
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
    transfers: Transfers,
    /// Keepers whose executions are over but whose namespaces are still being taken down.
    lingering: Vec<(u32, OwnedFd)>,
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
        self.transfers.send(&mut self.channel, BACKLOG);
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
        let mut hurry = takes_more && self.transfers.could_send(&self.channel);
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
                self.transfers.cancel(id, &mut self.channel);
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
            } => self.transfers.put(id, channel, base, &path, mode),
            ToGuest::Fill { id, channel, tree } => self.transfers.fill(id, channel, tree),
            ToGuest::Save {
                id,
                channel,
                tree,
                fresh,
            } => {
                let begun = self.transfers.save(id, channel, tree, fresh);
                self.unless_failed(id, begun);
            }
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
            ToGuest::Get { id, path, channel } => {
                let begun = self.transfers.get(id, channel, &path);
                self.unless_failed(id, begun);
            }
            ToGuest::List { id, path } => match files::list(&self.hello.workspace, &path) {
                Ok(entries) => self.listing(id, entries),
                Err(failure) => self.channel.send_failure(id, failure),
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

    fn unless_failed(&mut self, id: u32, begun: Result<(), Failure>) {
        if let Err(failure) = begun {
            self.channel.send_failure(id, failure);
        }
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

    fn data(&mut self, number: u32, bytes: &[u8]) {
        let channel = &mut self.channel;
        let relay = self.yard.as_mut().map(|yard| &mut yard.relay);
        if self.transfers.data(number, bytes, channel)
            || relay.is_some_and(|relay| relay.data(number, bytes, channel))
        {
            return;
        }
        if let Some(stdin) = stdin_of(&mut self.tasks, number) {
            stdin.push(bytes, channel);
        }
    }

    fn end(&mut self, number: u32) {
        let channel = &mut self.channel;
        if self.transfers.end(number, channel) {
            return;
        }
        if let Some(stdin) = stdin_of(&mut self.tasks, number) {
            stdin.end(channel);
        } else if let Some(yard) = &mut self.yard {
            yard.relay.end(number, channel);
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
        {
            if let Some(usage) = yard.meter.glance() {
                self.channel.send(&FromGuest::Usage(usage));
            }
            let tasks = self.tasks.iter().map(|task| task.keeper);
            let lingering = self.lingering.iter().map(|(keeper, _)| *keeper);
            let spare = self.spare.as_ref().map(Prepared::keeper);
            yard.bury(&tasks.chain(lingering).chain(spare).collect::<Vec<_>>());
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

fn stdin_of(tasks: &mut [Task], channel: u32) -> Option<&mut Stdin> {
    tasks
        .iter_mut()
        .filter_map(|task| task.stdin.as_mut())
        .find(|stdin| stdin.channel == channel)
}
