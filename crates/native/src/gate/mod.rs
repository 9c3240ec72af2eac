//! The gate for commands: decides on and records every start of a program, outside the sandbox. It is
//! the seccomp supervisor of all executions, so the kernel stops each `execve` until it is answered
//! here, and each started program until it is recorded.
//!
//! In a thread of its own and not in the async runtime: while it waits for a record to be written, no
//! other task must wait with it, and the kernel's calls block.

mod attempt_recorder;
mod decider;
mod execution;
mod mediation;

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brig_audit::Command;
use brig_linux::notify::Listener;
use brig_reason::ReasonCode;
use brig_sandbox::Attempts;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use brig_caller::PendingStarts;
pub(crate) use decider::{CommandDecider, SHIM};
use execution::WatchedExecution;

/// The process was gone before its result could be observed.
const UNCONFIRMED: ReasonCode = ReasonCode::CommandUnconfirmed;

/// One execution.
type ExecutionSlot = Arc<Execution>;

#[derive(Debug)]
struct Execution {
    /// Held while a call or a start is decided on. A denied program may end the execution when it is
    /// killed, and the execution must not be over before that is recorded.
    deciding: Mutex<()>,
    /// Empty once it is over.
    running: Mutex<Option<RunningExecution>>,
}

#[derive(Debug)]
struct RunningExecution {
    /// Where its attempts are recorded.
    attempts: Arc<Attempts>,
    starts: PendingStarts<Command>,
}

/// Executions are announced here. The gate's thread ends with the guest. Without it no program starts,
/// because the kernel fails calls that nobody can answer.
#[derive(Debug, Default)]
pub(crate) struct CommandGate {
    executions: Arc<Mutex<HashMap<u32, ExecutionSlot>>>,
}

impl CommandGate {
    /// Serves the listeners that the guest hands out.
    pub(crate) fn open(handoff: OwnedFd, decider: CommandDecider) -> io::Result<Self> {
        brig_caller::check_random_addresses()?;
        let gate = Self::default();
        let mut thread = GateThread {
            handoff,
            decider,
            executions: Arc::clone(&gate.executions),
            watched: Vec::new(),
        };
        std::thread::Builder::new()
            .name("command gate".into())
            .stack_size(256 * 1024)
            .spawn(move || while thread.serve_once().is_ok_and(|goes_on| goes_on) {})?;
        Ok(gate)
    }

    pub(crate) fn begins(&self, id: u32, attempts: &Arc<Attempts>) {
        let running = RunningExecution {
            attempts: Arc::clone(attempts),
            starts: PendingStarts::default(),
        };
        let slot = Arc::new(Execution {
            deciding: Mutex::default(),
            running: Mutex::new(Some(running)),
        });
        lock(&self.executions).insert(id, slot);
    }

    /// When this returns, nothing more is recorded for this execution.
    pub(crate) fn ends(&self, id: u32) {
        let slot = lock(&self.executions).remove(&id);
        let over = slot.and_then(|slot| {
            let _decided = lock(&slot.deciding);
            lock(&slot.running).take()
        });
        if let Some(RunningExecution { attempts, starts }) = over {
            for command in starts.into_records() {
                // If it can't be recorded, that ends the execution.
                let _ = attempts.command(with_code(command, UNCONFIRMED));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct GateThread {
    handoff: OwnedFd,
    decider: CommandDecider,
    executions: Arc<Mutex<HashMap<u32, ExecutionSlot>>>,
    watched: Vec<WatchedExecution>,
}

impl GateThread {
    /// Waits and serves once. `false`: the guest is gone.
    fn serve_once(&mut self) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.handoff, PollFlags::IN)];
        let listeners = self.watched.iter();
        fds.extend(listeners.map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
        let due = self.watched.iter().filter_map(WatchedExecution::due).min();
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        let wait = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Err(Errno::INTR) => return Ok(true),
            polled => polled?,
        };
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let (handoff, listeners) = ready.split_first().unwrap_or((&PollFlags::HUP, &[]));
        let mut index = 0;
        for flags in listeners {
            let served = if flags.contains(PollFlags::IN) {
                self.watched[index].serve(&self.decider).is_ok()
            } else {
                flags.is_empty()
            };
            if served {
                index += 1;
            } else {
                self.watched.remove(index);
            }
        }
        if due.is_some() {
            let now = Instant::now();
            for one in &mut self.watched {
                one.check_pending(&self.decider, now);
            }
        }
        if handoff.contains(PollFlags::IN) {
            return self.take_listener();
        }
        Ok(handoff.is_empty())
    }

    /// Takes the listener of a new execution. The guest is not trusted: the listener of an execution
    /// that was not announced is closed, so that nothing starts in it.
    fn take_listener(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; 4];
        let message = rustix::net::recvmsg(
            &self.handoff,
            &mut [io::IoSliceMut::new(&mut number)],
            &mut control,
            rustix::net::RecvFlags::CMSG_CLOEXEC,
        )?;
        if message.bytes != number.len() {
            return Ok(false);
        }
        let mut descriptors = control.drain().flat_map(|message| match message {
            rustix::net::RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let (descriptor, connector) = (descriptors.next(), descriptors.next());
        let slot = lock(&self.executions)
            .get(&u32::from_le_bytes(number))
            .cloned();
        if let (Some(descriptor), Some(slot)) = (descriptor, slot) {
            let listener = Listener::from(descriptor);
            listener.set_sync_wake_up();
            self.watched
                .push(WatchedExecution::new(listener, slot, connector));
        }
        Ok(true)
    }
}

fn with_code(command: Command, code: ReasonCode) -> Command {
    Command {
        code: code.into(),
        ..command
    }
}
