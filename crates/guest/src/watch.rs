//! Reports every start of a program in a container, and every call with an unreachable address
//! ([`crate::addresses`]). The engine's kernel can't be observed from outside, so the guest itself is
//! the seccomp supervisor here.
//!
//! Programs with denied names are refused, but that is not the enforcement: the guest runs beside
//! hostile code. Denied files are enforced by the stand-ins in their place.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use brig_caller::{
    Caller, PendingStart, PendingStarts, RequestedProgram, ResolvedPath, StartResult,
};
use brig_linux::mediate::{HANDOFF, Request};
use brig_linux::notify::{Answer, Call, Listener, Notification};
use brig_wire::{Container, Exec, ExecOutcome, FromGuest};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::addresses::Addresses;
use crate::channel::Channel;
use crate::quotas::{self, Quotas};
use crate::stand_ins::{StandIns, text};
use crate::task::Task;
use crate::{Failure, Step};

#[derive(Debug)]
pub(crate) struct ExecWatch {
    denied: Option<StandIns>,
    addresses: Addresses,
    /// Keepers send the listeners of their filters over `send`.
    send: OwnedFd,
    receive: OwnedFd,
    watched: Vec<WatchedExecution>,
}

#[derive(Debug)]
struct WatchedExecution {
    id: u32,
    listener: Listener,
    starts: PendingStarts<Exec>,
    /// Whether its program runs. Before that, the process can't be read because it is the guest's,
    /// which is not dumpable. Afterwards, code that can't be read hides itself.
    begun: bool,
    quotas: Quotas,
}

impl ExecWatch {
    pub(crate) fn open(container: &Container) -> Result<Self, Failure> {
        let flags = SocketFlags::CLOEXEC;
        brig_caller::check_random_addresses().step("look at what runs")?;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (receive, send) = pair.step("make a socket")?;
        // A fixed number, which the filter exempts: see `HANDOFF`.
        let send = rustix::io::fcntl_dupfd_cloexec(&send, HANDOFF.cast_signed());
        let send = send.step(format!("open descriptor {HANDOFF}"))?;
        Ok(Self {
            denied: container.denied.clone().map(StandIns::find),
            addresses: Addresses::new(container),
            send,
            receive,
            watched: Vec::new(),
        })
    }

    pub(crate) fn handoff(&self) -> &OwnedFd {
        &self.send
    }

    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listeners = self.watched.iter().map(|one| one.listener.as_fd());
        std::iter::once(self.receive.as_fd()).chain(listeners)
    }

    /// `index` is that of [`ExecWatch::poll_fds`]: the first one is the socket for listeners.
    pub(crate) fn handle(&mut self, index: usize, tasks: &[Task], channel: &mut Channel) {
        match index.checked_sub(1) {
            None => self.take_listener(),
            Some(index) => {
                let (denied, addresses) = (self.denied.as_ref(), &mut self.addresses);
                let served = self.watched.get_mut(index).map(|one| {
                    let task = tasks.iter().find(|task| task.id == one.id);
                    one.serve(task, denied, addresses, channel)
                });
                if matches!(served, Some(Err(_))) {
                    let gone = self.watched.remove(index);
                    gone.report_unconfirmed(channel);
                }
            }
        }
    }

    /// Checks starts without a notification, and reports what was counted.
    pub(crate) fn check_pending(&mut self, channel: &mut Channel) {
        self.addresses.flush(channel, false);
        let now = Instant::now();
        let denied = self.denied.as_ref();
        for one in &mut self.watched {
            for (start, seen) in one.starts.take_settled(now) {
                one.conclude(start, seen, denied, channel);
            }
        }
    }

    /// The execution is over.
    pub(crate) fn remove(&mut self, id: u32, channel: &mut Channel) {
        for gone in self.watched.extract_if(.., |one| one.id == id) {
            gone.report_unconfirmed(channel);
        }
        self.addresses.flush(channel, true);
        if self.watched.is_empty() {
            self.addresses.clear();
        }
    }

    fn take_listener(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; 4];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(
            &self.receive,
            &mut [IoSliceMut::new(&mut number)],
            &mut control,
            flags,
        );
        if received.is_err() {
            return;
        }
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        if let Some(descriptor) = descriptor {
            let listener = Listener::from(descriptor);
            listener.set_sync_wake_up();
            self.watched.push(WatchedExecution {
                id: u32::from_le_bytes(number),
                listener,
                starts: PendingStarts::default(),
                begun: false,
                quotas: Quotas::default(),
            });
        }
    }
}

impl WatchedExecution {
    fn serve(
        &mut self,
        task: Option<&Task>,
        denied: Option<&StandIns>,
        addresses: &mut Addresses,
        channel: &mut Channel,
    ) -> std::io::Result<()> {
        let Some(notification) = self.listener.receive()? else {
            return Ok(());
        };
        let answer = match notification.call {
            Call::Exec { .. } => self.exec(&notification, task, denied, channel),
            Call::Started => self.started(&notification, denied, channel),
            Call::Other => match Request::of(&notification) {
                Request::Netlink { kind, protocol } => {
                    quotas::netlink(&self.listener, notification.id, kind, protocol);
                    return Ok(());
                }
                Request::Filter => self.quotas.filter(),
                request => addresses.check(&self.listener, &notification, &request, channel),
            },
        };
        // Fails only if the caller is gone, or was interrupted by a signal and makes the call again.
        let answered = self.listener.answer(notification.id, answer);
        if answered.is_err() && matches!(notification.call, Call::Exec { .. }) {
            self.starts.remove(notification.thread);
        }
        Ok(())
    }

    fn exec(
        &mut self,
        notification: &Notification,
        task: Option<&Task>,
        denied: Option<&StandIns>,
        channel: &mut Channel,
    ) -> Answer {
        let caller = Caller::new(notification.thread);
        let read = read_request(self.id, notification);
        let runs = caller.program_file();
        // From here on, what was read is known to be from this caller.
        if !self.listener.is_pending(notification.id) {
            return Answer::Continue;
        }
        if let Some((start, seen)) = self.starts.settle(caller) {
            self.conclude(start, seen, denied, channel);
        }
        let first = task.filter(|_| !self.begun);
        let Some((mut exec, requested)) =
            read.or_else(|| first_program(self.id, notification, first?))
        else {
            // The guest can't read the arguments. The kernel must not read them later either.
            return Answer::Errno(Errno::FAULT.raw_os_error());
        };
        let has = |file| denied.is_some_and(|denied| denied.has(file));
        exec.denied_file = denied
            .filter(|_| !has(requested.file))
            .and_then(|denied| denied.denied_through(caller, &requested));
        let named = denied.is_some_and(|denied| denied.deny(&exec, requested.file));
        let answer = if named || exec.denied_file.is_some() {
            exec.refused = true;
            Answer::Errno(Errno::ACCESS.raw_os_error())
        } else if let ResolvedPath::Missing(error) = requested.resolved {
            // Answered here and not by the kernel: a file may have been created since.
            Answer::Errno(error.raw_os_error())
        } else if has(runs) || has(requested.file) {
            // A stand-in reports itself, by an `execve` that always fails.
            Answer::Continue
        } else {
            let start = PendingStart::new(caller, requested, exec);
            self.starts.insert(notification.thread, start);
            return Answer::Continue;
        };
        channel.send(&FromGuest::Exec(Box::new(exec)));
        answer
    }

    /// A program has started, and has not run any code of its own.
    fn started(
        &mut self,
        notification: &Notification,
        denied: Option<&StandIns>,
        channel: &mut Channel,
    ) -> Answer {
        let caller = Caller::new(notification.thread);
        let (image, runs) = (caller.image(), caller.program_file());
        if !self.listener.is_pending(notification.id) {
            return Answer::Continue;
        }
        let (start, mut failed) = self.starts.take(notification.thread, image, runs);
        failed.extend(self.starts.take_failed(notification.thread, image));
        for start in failed {
            self.conclude(start, StartResult::Failed, denied, channel);
        }
        if start.is_none() {
            // Not requested: a program that runs already makes such a call again.
            return Answer::Continue;
        }
        if self.confirm(caller, start, denied, channel) {
            Answer::Continue
        } else {
            Answer::Errno(Errno::PERM.raw_os_error())
        }
    }

    fn conclude(
        &mut self,
        start: PendingStart<Exec>,
        seen: StartResult,
        denied: Option<&StandIns>,
        channel: &mut Channel,
    ) {
        let outcome = match seen {
            StartResult::Running(caller) => {
                self.confirm(caller, Some(start), denied, channel);
                return;
            }
            StartResult::Failed => ExecOutcome::Failed,
            StartResult::Gone => ExecOutcome::Unconfirmed,
        };
        let exec = Exec {
            outcome,
            ..start.record
        };
        channel.send(&FromGuest::Exec(Box::new(exec)));
    }

    /// Reports what runs now, as the kernel knows it, and kills it if it is denied. Returns whether it
    /// may go on.
    fn confirm(
        &mut self,
        caller: Caller,
        start: Option<PendingStart<Exec>>,
        denied: Option<&StandIns>,
        channel: &mut Channel,
    ) -> bool {
        self.begun = true;
        let start_time = caller.start_time();
        let (program, file) = (caller.program(), caller.program_file());
        if denied.is_some_and(|denied| denied.has(file)) {
            return true;
        }
        let Some(program) = program else {
            return start
                .is_none_or(|start| Self::confirm_unreadable(caller, start, denied, channel));
        };
        let program = program.to_string_lossy().into_owned();
        let known = start.as_ref().is_some_and(|start| {
            // The first program of an execution can't be resolved, but the guest has its request.
            let first =
                start.requested.resolved == ResolvedPath::Unknown && start.record.caller.is_none();
            first || start.is_as_requested(caller, file)
        });
        let mut exec = match start {
            Some(start) if known => start.record,
            start => {
                // The request has changed since it was read, or was never read.
                let image = caller.image();
                let family = Caller::process_and_parent(caller.thread());
                let (process, parent) = family.unwrap_or((caller.thread(), 0));
                let mut exec = Exec {
                    id: self.id,
                    process,
                    parent,
                    caller: start.as_ref().and_then(|start| start.record.caller.clone()),
                    program: caller.started_as().unwrap_or_default(),
                    path: Some(program.clone()),
                    arguments: caller.arguments(),
                    ..Exec::default()
                };
                shorten(&mut exec.arguments);
                // Checked after reading: a process that has ended shows no arguments.
                match start.filter(|_| image.is_none() || caller.image() != image) {
                    Some(start) => Exec {
                        outcome: ExecOutcome::Unconfirmed,
                        ..start.record
                    },
                    None => exec,
                }
            }
        };
        let runs = Path::new(&program);
        exec.denied_file = denied.and_then(|denied| denied.started_loader(caller, runs));
        exec.path.get_or_insert(program);
        let named = denied.is_some_and(|denied| denied.deny(&exec, file));
        exec.refused = named || exec.denied_file.is_some();
        if exec.refused {
            caller.kill(start_time);
        }
        let refused = exec.refused;
        channel.send(&FromGuest::Exec(Box::new(exec)));
        self.starts.remember(caller.image());
        !refused
    }

    /// A program that can't be inspected: it is gone, or its file is not readable. If there are denied
    /// programs, it may be one of them, and is killed. A stand-in reports itself.
    fn confirm_unreadable(
        caller: Caller,
        start: PendingStart<Exec>,
        denied: Option<&StandIns>,
        channel: &mut Channel,
    ) -> bool {
        let stands_in = |denied: &StandIns| denied.interprets(caller, &start.requested);
        if denied.is_some_and(stands_in) {
            return true;
        }
        let start_time = caller.start_time();
        let refused = denied.is_some() && caller.exists();
        if refused {
            caller.kill(start_time);
        }
        let exec = Exec {
            refused,
            outcome: ExecOutcome::Unconfirmed,
            ..start.record
        };
        channel.send(&FromGuest::Exec(Box::new(exec)));
        !refused
    }

    /// Reports the starts whose result will not be known.
    fn report_unconfirmed(self, channel: &mut Channel) {
        for exec in self.starts.into_records() {
            let exec = Exec {
                outcome: ExecOutcome::Unconfirmed,
                ..exec
            };
            channel.send(&FromGuest::Exec(Box::new(exec)));
        }
    }
}

/// The request, if it can be read.
fn read_request(id: u32, notification: &Notification) -> Option<(Exec, RequestedProgram)> {
    let caller = Caller::new(notification.thread);
    let requested = caller.requested(&notification.call).ok()?;
    let program = caller.program().as_deref().map(text);
    Some((exec(id, notification, program, &requested), requested))
}

/// The request of an execution's first program. Its process can't be read, because it is not dumpable,
/// but the guest knows what it will execute.
fn first_program(
    id: u32,
    notification: &Notification,
    task: &Task,
) -> Option<(Exec, RequestedProgram)> {
    let (_, parent) = Caller::process_and_parent(notification.thread)?;
    let arguments = (task.keeper == parent).then(|| task.argv.clone())?;
    let requested = RequestedProgram {
        program: arguments.first().cloned().unwrap_or_default(),
        resolved: ResolvedPath::Unknown,
        file: None,
        arguments,
    };
    Some((exec(id, notification, None, &requested), requested))
}

fn exec(
    id: u32,
    notification: &Notification,
    program: Option<String>,
    requested: &RequestedProgram,
) -> Exec {
    let (process, parent) =
        Caller::process_and_parent(notification.thread).unwrap_or((notification.thread, 0));
    let mut exec = Exec {
        id,
        process,
        parent,
        caller: program,
        path: requested.resolved.path().map(text),
        program: requested.program.clone(),
        arguments: requested.arguments.clone(),
        ..Exec::default()
    };
    shorten(&mut exec.arguments);
    exec
}

/// To what a message may contain.
fn shorten(arguments: &mut Vec<String>) {
    arguments.truncate(64);
    for word in arguments {
        let end = (0..=word.len().min(1024))
            .rev()
            .find(|end| word.is_char_boundary(*end));
        word.truncate(end.unwrap_or(0));
    }
}
