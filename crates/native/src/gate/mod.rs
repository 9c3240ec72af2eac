//! Every start of a program in a sandbox, seen from outside. The kernel holds each one until it is
//! on record here. What the caller says can change while it is read, so nothing is held by this
//! alone: denied files are covered, and an allowlist is Landlock's.

mod book;
mod judge;

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_audit::Command;
use brig_linux::notify::{Answer, Call, Listener, Waiting};
use brig_sandbox::Attempts;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use book::Book;
use brig_caller::{Asked, Caller};
pub use judge::{Judge, SHIM};
use judge::{Ruling, Verdict};

/// Where an execution's attempts are told, until it is over.
type Place = Arc<Mutex<Option<Arc<Attempts>>>>;

/// The side that executions are announced to. A thread of its own serves the kernel; it ends with
/// the guest, and without it no program starts.
#[derive(Debug, Default)]
pub struct CommandGate {
    executions: Arc<Mutex<HashMap<u32, Place>>>,
}

impl CommandGate {
    /// Serves what the guest hands out from now on.
    pub fn open(handoff: OwnedFd, judge: Judge) -> io::Result<Self> {
        let gate = Self::default();
        let mut keeper = Keeper {
            handoff,
            judge,
            executions: Arc::clone(&gate.executions),
            watched: Vec::new(),
        };
        std::thread::Builder::new()
            .name("command gate".into())
            .stack_size(256 * 1024)
            .spawn(move || while keeper.turn().is_ok_and(|goes_on| goes_on) {})?;
        Ok(gate)
    }

    pub fn begins(&self, id: u32, attempts: &Arc<Attempts>) {
        let place = Arc::new(Mutex::new(Some(Arc::clone(attempts))));
        lock(&self.executions).insert(id, place);
    }

    /// Nothing is told of it any more; what is being told has been when this returns.
    pub fn ends(&self, id: u32) {
        if let Some(place) = lock(&self.executions).remove(&id) {
            lock(&place).take();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keeper {
    handoff: OwnedFd,
    judge: Judge,
    executions: Arc<Mutex<HashMap<u32, Place>>>,
    watched: Vec<Watched>,
}

/// One execution.
struct Watched {
    listener: Listener,
    place: Place,
    book: Book,
}

impl Keeper {
    /// Waits and serves once. `false`: the guest is gone.
    fn turn(&mut self) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.handoff, PollFlags::IN)];
        let listeners = self.watched.iter();
        fds.extend(
            listeners.map(|one| PollFd::from_borrowed_fd(one.listener.as_fd(), PollFlags::IN)),
        );
        match rustix::event::poll(&mut fds, None) {
            Err(Errno::INTR) => return Ok(true),
            polled => polled?,
        };
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let (handoff, listeners) = ready.split_first().unwrap_or((&PollFlags::HUP, &[]));
        let mut index = 0;
        for flags in listeners {
            let served = if flags.contains(PollFlags::IN) {
                self.watched[index].serve(&self.judge).is_ok()
            } else {
                flags.is_empty()
            };
            if served {
                index += 1;
            } else {
                self.watched.remove(index);
            }
        }
        if handoff.contains(PollFlags::IN) {
            return self.take();
        }
        Ok(handoff.is_empty())
    }

    /// Takes the listener of an execution that begins. One that nobody announced is let go, so
    /// that nothing starts in it.
    fn take(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
        let descriptor = control.drain().find_map(|message| match message {
            rustix::net::RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let place = lock(&self.executions)
            .get(&u32::from_le_bytes(number))
            .cloned();
        if let (Some(descriptor), Some(place)) = (descriptor, place) {
            let listener = Listener::from(descriptor);
            listener.wake_in_place();
            self.watched.push(Watched {
                listener,
                place,
                book: Book::default(),
            });
        }
        Ok(true)
    }
}

impl Watched {
    fn serve(&mut self, judge: &Judge) -> io::Result<()> {
        let Some(waiting) = self.listener.receive()? else {
            return Ok(());
        };
        let answer = match waiting.call {
            Call::Exec { .. } => self.exec(judge, &waiting),
            Call::Started => self.started(judge, &waiting),
            Call::Other => Answer::Continue,
        };
        // Fails only if whoever asked is gone.
        let _ = self.listener.answer(waiting.id, answer);
        Ok(())
    }

    fn exec(&mut self, judge: &Judge, waiting: &Waiting) -> Answer {
        let caller = Caller::new(waiting.thread);
        judge.learn(&caller);
        let (program, file) = (caller.program(), caller.program_file());
        let Ok(asked) = caller.asked(&waiting.call) else {
            // It can't be read, so the kernel can't either.
            return Answer::Errno(Errno::FAULT.raw_os_error());
        };
        if !self.listener.waits(waiting.id) {
            return Answer::Continue;
        }
        let running = program.as_deref();
        let stand_in = running.and_then(|path| Some((path, judge.stand_in(path, file)?)));
        if let Some((path, denied)) = &stand_in {
            return self.stood_in(judge, &caller, asked, (path, denied));
        }
        if asked.program == brig_sandbox::link::CALLER {
            self.book.note_caller(&caller, asked.arguments.first());
            return Answer::Errno(Errno::NOENT.raw_os_error());
        }
        let verdict = judge.judge(&caller, &asked);
        if matches!(verdict.ruling, Ruling::Nothing)
            || self.book.is_same_search(waiting.thread, &asked, &verdict)
        {
            return verdict.answer;
        }
        if verdict.stands_in {
            self.book.expect(waiting.thread, &asked);
        }
        let told = self.tell(judge, &caller, asked, running, &verdict);
        told.map_or(Answer::Errno(Errno::PERM.raw_os_error()), |()| {
            verdict.answer
        })
    }

    /// A stand-in has started and says so. What was asked for before may have been told already;
    /// what was asked for in a way that could not be seen is told now.
    fn stood_in(
        &mut self,
        judge: &Judge,
        caller: &Caller,
        asked: Asked,
        (program, denied): (&Path, &Verdict),
    ) -> Answer {
        if !self.book.was_expected(caller.thread()) {
            let asked = Asked {
                program: program.display().to_string(),
                place: brig_caller::Place::File(program.to_owned()),
                ..asked
            };
            let _ = self.tell(judge, caller, asked, None, denied);
        }
        Answer::Errno(Errno::ACCESS.raw_os_error())
    }

    /// A program has started: under an allowlist, one of those that may. A loader that was started
    /// by itself would run anything.
    fn started(&mut self, judge: &Judge, waiting: &Waiting) -> Answer {
        let caller = Caller::new(waiting.thread);
        judge.learn(&caller);
        let (program, file) = (caller.program(), caller.program_file());
        let Some(verdict) = judge.started(program.as_deref(), file) else {
            return Answer::Continue;
        };
        let asked = Asked {
            program: program
                .as_deref()
                .map_or_else(String::new, |path| path.display().to_string()),
            place: program.map_or(brig_caller::Place::Unknown, brig_caller::Place::File),
            file,
            arguments: caller.arguments(),
        };
        if self.listener.waits(waiting.id) {
            caller.kill();
            let _ = self.tell(judge, &caller, asked, None, &verdict);
        }
        Answer::Errno(Errno::PERM.raw_os_error())
    }

    fn tell(
        &mut self,
        judge: &Judge,
        caller: &Caller,
        mut asked: Asked,
        parent: Option<&Path>,
        verdict: &Verdict,
    ) -> brig_sandbox::Result<()> {
        // A search that meets nothing in its first folder may go on to a file.
        let searched = || judge.search(caller, &asked);
        let path = asked.place.path().map(Path::to_owned).or_else(searched);
        let mut path = path.map(|path| path.display().to_string());
        // The name of a stand-in stands for what was asked for, installed or not.
        if let Some((name, covered)) = asked.place.path().and_then(|path| judge.stands_for(path)) {
            path = covered.map(|path| path.display().to_string());
            asked.program = name.to_owned();
        }
        // The guest itself is no program of the sandbox's.
        let parent = parent.map(|path| path.display().to_string());
        let parent = parent.filter(|path| !path.starts_with("/memfd:"));
        self.record(caller, asked, path, parent, verdict)
    }

    fn record(
        &mut self,
        caller: &Caller,
        asked: Asked,
        path: Option<String>,
        parent: Option<String>,
        verdict: &Verdict,
    ) -> brig_sandbox::Result<()> {
        let line = self.book.caller_of(caller);
        let command = Command {
            allowed: verdict.ruling.allowed(),
            code: verdict.ruling.code().into(),
            rule: verdict.rule.as_deref().map(str::to_owned),
            program: asked.program,
            path,
            arguments: brig_sandbox::link::as_given(asked.arguments),
            parent,
            caller: line,
        };
        match &*lock(&self.place) {
            Some(attempts) => attempts.command(command),
            // Over, and about to be ended.
            None => Err(brig_sandbox::Error::InstanceLost(
                "the execution is over".into(),
            )),
        }
    }
}
