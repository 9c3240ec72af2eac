//! The main loop: everything the guest waits for, in one place.
//!
//! One thread and `poll`, without an async runtime: the guest forks for every execution, and fork is
//! only safe in a process with one thread. It also keeps the program that is embedded in every Brig
//! small.

mod poll;
mod requests;

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use brig_wire::{FromGuest, Hello, RootSource, Spawn};

use crate::Failure;
use crate::channel::Channel;
use crate::connectors::{Connectors, ListenerHandoff};
use crate::container_init::{self, ContainerInit};
use crate::task::{PreparedTask, Task};
use crate::transfers::Transfers;
use crate::watch::ExecWatch;
use poll::Ready;

/// No more is read from programs while this much waits to be sent, so that a slow owner slows them
/// down instead of growing the guest.
const BACKLOG: usize = 1024 * 1024;

/// How long the guest waits after its first execution before it prepares the next one. A sandbox for a
/// single execution is destroyed by then, and saves the work. After a second one, the next is expected at once.
const SPARE_DELAY: Duration = Duration::from_millis(5);

pub(crate) fn run(
    channel: Channel,
    hello: Hello,
    handoff: Option<OwnedFd>,
    container: Option<ContainerInit>,
    connectors: Option<Connectors>,
) {
    let transfers = Transfers::of(&hello);
    let mut guest = Guest {
        channel,
        hello,
        handoff,
        container,
        connectors,
        spare: None,
        wants_spare: true,
        ended: 0,
        tasks: Vec::new(),
        transfers,
        exiting: Vec::new(),
        heard: Instant::now(),
    };
    if guest.channel.flush().is_ok() {
        // The time until the first request arrives is used to prepare for it.
        guest.prepare_spare();
        while let Ok(true) = guest.serve_once() {}
    }
}

struct Guest {
    channel: Channel,
    hello: Hello,
    /// The socket over which descriptors are handed to the owner.
    handoff: Option<OwnedFd>,
    /// Only in a container.
    container: Option<ContainerInit>,
    /// Only where calls are mediated.
    connectors: Option<Connectors>,
    /// A keeper for the next execution. Only while nothing runs, because it counts against the limit
    /// of processes.
    spare: Option<PreparedTask>,
    wants_spare: bool,
    /// How many executions have ended.
    ended: u64,
    tasks: Vec<Task>,
    transfers: Transfers,
    /// Processes to be reaped: keepers whose executions are over but whose namespaces the kernel is
    /// still removing, and connectors.
    exiting: Vec<(u32, OwnedFd)>,
    /// When the owner was last heard.
    heard: Instant,
}

impl Guest {
    /// Waits and serves once. `false`: the owner is gone.
    fn serve_once(&mut self) -> io::Result<bool> {
        let ready = self.wait()?;
        if ready.is_empty() && self.should_prepare_spare() {
            self.prepare_spare();
        }
        for ready in ready {
            match ready {
                Ready::Channel => {
                    if !self.channel.fill()? {
                        return Ok(false);
                    }
                    self.heard = Instant::now();
                    while let Some(frame) = self.channel.next_frame()? {
                        self.receive(frame)?;
                    }
                }
                Ready::Flush => {}
                Ready::Container(event) => {
                    if let Some(container) = &mut self.container {
                        container.handle(event, &self.tasks, &mut self.channel);
                    }
                }
                Ready::KeeperExit(task) => self.tasks[task].reap(false),
                Ready::KeeperReport(task) => self.tasks[task].read_status(),
                Ready::Exiting => self.exiting.retain(|(pid, _)| {
                    matches!(brig_linux::process::wait(Some(*pid), false), Ok(None))
                }),
                Ready::Connectors => {
                    let started = self.connectors.as_mut().and_then(Connectors::serve);
                    self.exiting.extend(started);
                }
                Ready::Output(task, stream) => {
                    let last = self.tasks[task].has_ended();
                    self.tasks[task].streams[stream].pump(&mut self.channel, last);
                }
                Ready::Input(task) => {
                    if let Some(stdin) = &mut self.tasks[task].stdin {
                        stdin.pump(&mut self.channel);
                    }
                }
            }
        }
        // Not before what waited on the stream was read.
        if self.until_silent().is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        self.transfers.send(&mut self.channel, BACKLOG);
        self.tasks.iter_mut().for_each(Task::end_in_time);
        self.maintain_container();
        self.finish();
        self.channel.flush()?;
        if self.ended > 1 && self.should_prepare_spare() {
            self.prepare_spare();
        }
        Ok(true)
    }

    /// The time until the owner counts as lost. In a container only: elsewhere its end closes the stream.
    fn until_silent(&self) -> Option<Duration> {
        match &self.hello.root {
            RootSource::Container(container) => {
                Some(container.max_silence.saturating_sub(self.heard.elapsed()))
            }
            RootSource::Setup(_) => None,
        }
    }

    /// After a request, and only while nothing runs.
    fn should_prepare_spare(&self) -> bool {
        self.tasks.is_empty() && self.wants_spare
    }

    fn prepare_spare(&mut self) {
        self.wants_spare = false;
        // A failure is not reported here: it happens again when the execution needs a keeper.
        self.spare = PreparedTask::new(&self.hello, self.listener_handoff(), None).ok();
    }

    /// Where keepers send the listeners of their seccomp filters.
    fn listener_handoff(&self) -> ListenerHandoff<'_> {
        let watch = self.container.as_ref().and_then(|own| own.watch.as_ref());
        ListenerHandoff {
            supervisor: self.handoff.as_ref().or(watch.map(ExecWatch::handoff)),
            connectors: self.connectors.as_ref().map(Connectors::handoff),
        }
    }

    fn start(&mut self, spawn: Spawn) -> Result<Task, Failure> {
        // The spare keeper has pipes, and so can't be used for a terminal.
        let fits = |spare: &PreparedTask| spawn.terminal.is_none() && spare.is_alive();
        let prepared = match self.spare.take() {
            Some(spare) if fits(&spare) => spare,
            other => {
                self.exiting.extend(other.and_then(PreparedTask::kill));
                PreparedTask::new(&self.hello, self.listener_handoff(), spawn.terminal)?
            }
        };
        // The container's CPU counter is this execution's only while no other one runs.
        let alone = self.tasks.is_empty();
        let container = self.container.as_mut().filter(|_| alone);
        let before = container.map(|own| own.meter.cpu_microseconds());
        let mut task = Task::start(prepared, spawn)?;
        task.cpu_before = before;
        for other in &mut self.tasks {
            other.cpu_before = None;
        }
        Ok(task)
    }

    /// Kills and reaps what executions leave behind in a container, and reports usage.
    fn maintain_container(&mut self) {
        let ending = self.tasks.iter().any(|task| task.orphans);
        if ending {
            let spare = self.spare.as_ref().map(PreparedTask::keeper);
            container_init::kill_orphans(&mut self.tasks, spare);
        }
        if let Some(container) = &mut self.container
            && !self.tasks.is_empty()
        {
            if !ending && let Some(usage) = container.meter.sample_if_due() {
                self.channel.send(&FromGuest::Usage(usage));
            }
            if let Some(watch) = &mut container.watch {
                watch.check_pending(&mut self.channel);
            }
            let tasks = self.tasks.iter().map(|task| task.keeper);
            let exiting = self.exiting.iter().map(|(keeper, _)| *keeper);
            let spare = self.spare.as_ref().map(PreparedTask::keeper);
            container.reap_orphans(&tasks.chain(exiting).chain(spare).collect::<Vec<_>>());
        }
    }

    /// Reports the executions that have ended and whose output has been read.
    fn finish(&mut self) {
        let mut index = 0;
        while let Some(task) = self.tasks.get_mut(index) {
            match task.final_message() {
                Some(mut message) => {
                    let before = task.cpu_before;
                    // Before the exit: the owner decides by it whether a limit ended the program.
                    if let Some(usage) = self.container.as_mut().and_then(|own| own.meter.sample())
                    {
                        self.channel.send(&FromGuest::Usage(usage));
                    }
                    if let (Some(own), Some(before)) = (&mut self.container, before)
                        && let FromGuest::Exited(exit) = &mut message
                    {
                        let used = own.meter.cpu_microseconds().saturating_sub(before);
                        exit.cpu_microseconds = exit.cpu_microseconds.max(used);
                    }
                    let id = self.tasks[index].id;
                    if let Some(watch) = self.container.as_mut().and_then(|own| own.watch.as_mut())
                    {
                        watch.remove(id, &mut self.channel);
                    }
                    self.channel.send(&message);
                    self.wants_spare = true;
                    self.ended += 1;
                    self.exiting.extend(self.tasks.remove(index).into_keeper());
                }
                None => index += 1,
            }
        }
    }
}
