//! The starts of programs in one execution.
//!
//! What a caller requests can change while it is read and after it was checked. So every start is
//! checked twice: the request before the kernel acts on it, and the running program before it has
//! run any code of its own. The second check decides what is recorded.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use brig_audit::Command;
use brig_caller::{
    Caller, Image, PendingStart, RequestedProgram, ResolvedPath, RunningProgram, StartResult,
};
use brig_linux::notify::{Answer, Call, Listener, Notification};
use brig_reason::ReasonCode;
use rustix::io::Errno;

use super::attempt_recorder::AttemptRecorder;
use super::decider::{CommandDecider, Decision, Effect};
use super::{ExecutionSlot, UNCONFIRMED, lock, mediation, with_code};

/// The kernel did not start it.
const FAILED: ReasonCode = ReasonCode::CommandFailed;

/// What can't be recorded must not run.
const NOT_RECORDED: Answer = Answer::Errno(Errno::PERM.raw_os_error());

pub(super) struct WatchedExecution {
    listener: Listener,
    slot: ExecutionSlot,
    recorder: AttemptRecorder,
    /// The socket to the connector, which answers mediated calls.
    connector: Option<OwnedFd>,
}

impl WatchedExecution {
    pub(super) fn new(listener: Listener, slot: ExecutionSlot, connector: Option<OwnedFd>) -> Self {
        Self {
            listener,
            slot,
            recorder: AttemptRecorder::default(),
            connector,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// When the next pending start has to be checked.
    pub(super) fn due(&self) -> Option<Instant> {
        lock(&self.slot.running).as_ref()?.starts.due()
    }

    /// Answers one call.
    pub(super) fn serve(&mut self, decider: &CommandDecider) -> io::Result<()> {
        let Some(notification) = self.listener.receive()? else {
            return Ok(());
        };
        let slot = Arc::clone(&self.slot);
        let _deciding = lock(&slot.deciding);
        let answer = match notification.call {
            Call::Exec { .. } => self.exec(decider, &notification),
            Call::Started => self.started(decider, &notification),
            Call::Other => match mediation::relay(&notification, self.connector.as_ref()) {
                Ok(()) => return Ok(()),
                Err(errno) => Answer::Errno(errno.raw_os_error()),
            },
        };
        // Fails only if the caller is gone, or was interrupted by a signal and makes the call again.
        let answered = self.listener.answer(notification.id, answer);
        if answered.is_err() && matches!(notification.call, Call::Exec { .. }) {
            self.recorder.answer_lost(notification.thread);
            if let Some(running) = lock(&self.slot.running).as_mut() {
                running.starts.remove(notification.thread);
            }
        }
        Ok(())
    }

    fn exec(&mut self, decider: &CommandDecider, notification: &Notification) -> Answer {
        let caller = Caller::new(notification.thread);
        decider.learn(&caller);
        let (program, file) = (caller.program(), caller.program_file());
        let Ok(requested) = caller.requested(&notification.call) else {
            // Not readable, so the kernel can't read it either.
            return Answer::Errno(Errno::FAULT.raw_os_error());
        };
        // From here on, what was read is known to be from this caller.
        if !self.listener.is_pending(notification.id) {
            return Answer::Continue;
        }
        let before = lock(&self.slot.running)
            .as_mut()
            .and_then(|running| running.starts.settle(caller));
        if let Some((start, seen)) = before {
            self.conclude(decider, start, seen);
        }
        let running = program.as_deref();
        let stand_in = running.and_then(|path| Some((path, decider.stand_in(path, file)?)));
        if let Some((path, denied)) = &stand_in {
            return self.stand_in_started(decider, &caller, requested, (path, denied));
        }
        self.recorder.take_expected(notification.thread);
        if requested.program == brig_guest_host::link::CALLER {
            self.recorder
                .note_caller(&caller, requested.arguments.first());
            return Answer::Errno(Errno::NOENT.raw_os_error());
        }
        let decision = decider.decide(&caller, &requested);
        if matches!(decision.effect, Effect::Nothing) {
            return decision.answer;
        }
        let resolved_file = || decider.resolved_file(&caller, &requested);
        let thread = notification.thread;
        if (self.recorder).is_same_search(thread, &requested, &decision, resolved_file) {
            return decision.answer;
        }
        let command = self.command(decider, &caller, requested.clone(), running, &decision);
        if decision.effect.allowed() {
            // Recorded when the kernel has started it.
            return match lock(&self.slot.running).as_mut() {
                Some(running) => {
                    let start = PendingStart::new(caller, requested, command);
                    running.starts.insert(notification.thread, start);
                    decision.answer
                }
                // The execution is over, and about to be killed.
                None => NOT_RECORDED,
            };
        }
        if decision.is_stand_in {
            self.recorder
                .expect_stand_in(notification.thread, &requested);
        }
        if self.recorder.was_recorded(notification.thread, &requested) {
            return decision.answer;
        }
        self.record(command)
            .map_or(NOT_RECORDED, |()| decision.answer)
    }

    /// A stand-in has started and reports itself. If the request for it was seen, it is recorded
    /// already. Otherwise, for example as the interpreter of a script, it is recorded now.
    fn stand_in_started(
        &mut self,
        decider: &CommandDecider,
        caller: &Caller,
        requested: RequestedProgram,
        (program, denied): (&Path, &Decision),
    ) -> Answer {
        if !self.recorder.take_expected(caller.thread()) {
            let requested = RequestedProgram {
                program: program.display().to_string(),
                resolved: ResolvedPath::File(program.to_owned()),
                ..requested
            };
            let command = self.command(decider, caller, requested, None, denied);
            // If it can't be recorded, that ends the execution.
            let _ = self.record(command);
        }
        Answer::Errno(Errno::ACCESS.raw_os_error())
    }

    /// A program has started, and has not run any code of its own: it is recorded, or killed. Without a
    /// request, it is a program that runs already and makes such a call again.
    fn started(&mut self, decider: &CommandDecider, notification: &Notification) -> Answer {
        let caller = Caller::new(notification.thread);
        decider.learn(&caller);
        let image = caller.image();
        if lock(&self.slot.running)
            .as_ref()
            .is_some_and(|running| running.starts.is_known(image))
        {
            return self.known(decider, notification, image);
        }
        let runs = RunningProgram::of(caller);
        let (start, failed) = {
            let mut slot = lock(&self.slot.running);
            let Some(running) = slot.as_mut() else {
                return NOT_RECORDED;
            };
            if !self.listener.is_pending(notification.id) {
                return Answer::Continue;
            }
            let (start, mut failed) =
                (running.starts).take(notification.thread, runs.image, runs.file);
            failed.extend(running.starts.take_failed(notification.thread, runs.image));
            (start, failed)
        };
        for start in failed {
            self.conclude(decider, start, StartResult::Failed);
        }
        // With an allowlist, every program is checked, requested or not.
        let wrong = || decider.started(runs.program.as_deref(), runs.file);
        if start.is_none() && wrong().is_none() {
            return Answer::Continue;
        }
        if self.confirm(decider, caller, start, runs) {
            Answer::Continue
        } else {
            NOT_RECORDED
        }
    }

    /// A program that is on record makes such a call again, as most do: what it requested in between
    /// was refused.
    fn known(
        &mut self,
        decider: &CommandDecider,
        notification: &Notification,
        image: Option<Image>,
    ) -> Answer {
        if self.listener.is_pending(notification.id) {
            let failed = lock(&self.slot.running)
                .as_mut()
                .and_then(|running| running.starts.take_failed(notification.thread, image));
            if let Some(start) = failed {
                self.conclude(decider, start, StartResult::Failed);
            }
        }
        Answer::Continue
    }

    /// Checks starts without a notification: those that the kernel refused, and the few programs that
    /// don't make the call.
    pub(super) fn check_pending(&mut self, decider: &CommandDecider, now: Instant) {
        let slot = Arc::clone(&self.slot);
        let _deciding = lock(&slot.deciding);
        let settled = lock(&self.slot.running)
            .as_mut()
            .map(|running| running.starts.take_settled(now));
        for (start, seen) in settled.into_iter().flatten() {
            self.conclude(decider, start, seen);
        }
    }

    fn conclude(
        &mut self,
        decider: &CommandDecider,
        start: PendingStart<Command>,
        seen: StartResult,
    ) {
        let code = match seen {
            StartResult::Running(caller) => {
                self.confirm(decider, caller, Some(start), RunningProgram::of(caller));
                return;
            }
            StartResult::Failed => FAILED,
            StartResult::Gone => UNCONFIRMED,
        };
        let _ = self.record(with_code(start.record, code));
    }

    /// Records what runs now, as the kernel knows it, and kills it if it is denied. Returns whether it
    /// may go on.
    fn confirm(
        &mut self,
        decider: &CommandDecider,
        caller: Caller,
        start: Option<PendingStart<Command>>,
        runs: RunningProgram,
    ) -> bool {
        let RunningProgram {
            start_time,
            program,
            file,
            image,
        } = runs;
        if let Some(path) = program.as_deref()
            && decider.stand_in(path, file).is_some()
        {
            // It reports itself.
            return true;
        }
        let wrong = decider.started(program.as_deref(), file);
        let wrong = wrong.or_else(|| {
            let program = program.as_deref()?;
            let loader = decider.started_loader(&caller, program);
            let path = || decider.started_as(&caller);
            loader
                .or_else(path)
                .or_else(|| decider.started_interpreter(&caller, program, start.as_ref(), file))
        });
        let command = match start {
            Some(start) if wrong.is_none() && start.is_as_requested(caller, file) => start.record,
            start => {
                // The request has changed since it was read, or was never read.
                let requested = RequestedProgram {
                    program: caller.started_as().unwrap_or_default(),
                    resolved: program.map_or(ResolvedPath::Unknown, ResolvedPath::File),
                    file,
                    arguments: caller.arguments(),
                };
                // Checked after reading: a process that has ended shows no arguments.
                let complete = image.is_some() && caller.image() == image;
                match start {
                    Some(start) if !complete => unread(start.record, wrong.as_ref(), caller),
                    start => {
                        let decision = wrong
                            .clone()
                            .unwrap_or_else(|| decider.observed(&requested));
                        let parent = start.and_then(|start| start.record.parent);
                        let parent = parent.map(PathBuf::from);
                        self.command(decider, &caller, requested, parent.as_deref(), &decision)
                    }
                }
            }
        };
        if wrong.is_some() {
            caller.kill(start_time);
        }
        let recorded = self.record(command);
        if recorded.is_err() {
            caller.kill(start_time);
        }
        if let Some(running) = lock(&self.slot.running).as_mut() {
            running.starts.remember(image);
        }
        wrong.is_none() && recorded.is_ok()
    }

    fn command(
        &mut self,
        decider: &CommandDecider,
        caller: &Caller,
        mut requested: RequestedProgram,
        parent: Option<&Path>,
        decision: &Decision,
    ) -> Command {
        let path = decider.resolved_file(caller, &requested);
        let mut path = path.map(|path| path.display().to_string());
        // A stand-in is recorded as the program that it replaces, installed or not.
        if let Some((name, covered)) = requested
            .resolved
            .path()
            .and_then(|path| decider.replaced_by(path))
        {
            path = covered.map(|path| path.display().to_string());
            requested.program = name.to_owned();
        }
        // The guest itself runs from a memory file, and is not a program of the sandbox.
        let parent = parent.map(|path| path.display().to_string());
        Command {
            allowed: decision.effect.allowed(),
            code: decision.effect.code().into(),
            rule: decision.rule.as_deref().map(str::to_owned),
            program: requested.program,
            path,
            arguments: brig_guest_host::link::as_given(requested.arguments),
            parent: parent.filter(|path| !path.starts_with("/memfd:")),
            caller: self.recorder.caller_of(caller),
            ..Command::default()
        }
    }

    fn record(&mut self, command: Command) -> brig_sandbox::Result<()> {
        match &*lock(&self.slot.running) {
            Some(running) => running.attempts.command(command),
            // The execution is over, and about to be killed.
            None => Err(brig_sandbox::Error::InstanceLost(
                "the execution is over".into(),
            )),
        }
    }
}

/// The record of a start that can't be read back: the process has ended, or its program is not
/// readable. What was requested is all that is known.
fn unread(record: Command, wrong: Option<&Decision>, caller: Caller) -> Command {
    match wrong.filter(|_| caller.is_alive()) {
        Some(denied) => Command {
            allowed: false,
            code: denied.effect.code().into(),
            rule: denied.rule.as_deref().map(str::to_owned),
            ..record
        },
        None => with_code(record, UNCONFIRMED),
    }
}
