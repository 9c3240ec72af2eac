//! Starts of programs that the kernel was allowed to make, until their result is known. The kernel
//! may refuse, and it may start another file than the one that was checked: the caller can change
//! its memory and its directories in between.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use brig_linux::process_stat::ProcessStat;

use crate::image::Activity;
use crate::{Caller, FileId, Image, RequestedProgram, ResolvedPath};

/// How many running programs are remembered. A forgotten one may be recorded twice.
const KNOWN: usize = 4096;
/// When a start without a notification is first checked. Most programs notify at once.
const FIRST_CHECK: Duration = Duration::from_millis(1);
/// After this time without a notification, a start may count as failed.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The pending starts of one execution, by thread, each with its record.
#[derive(Debug)]
pub struct PendingStarts<T> {
    pending: HashMap<u32, PendingStart<T>>,
    known: HashSet<Image>,
    order: VecDeque<Image>,
}

/// One start whose result is not known yet.
#[derive(Debug)]
pub struct PendingStart<T> {
    /// What is recorded if it starts as requested.
    pub record: T,
    pub requested: RequestedProgram,
    /// What the process ran before.
    image: Option<Image>,
    process: u32,
    /// Start time of the thread, which tells it from a later one with the same id.
    thread_start: Option<u64>,
    requested_at: Instant,
    next_check: Instant,
}

/// The result of a start.
#[derive(Clone, Copy, Debug)]
pub enum StartResult {
    Running(Caller),
    /// The kernel did not start it.
    Failed,
    /// The process was gone before its result could be observed.
    Gone,
}

impl<T> PendingStart<T> {
    pub fn new(caller: Caller, requested: RequestedProgram, record: T) -> Self {
        let thread = caller.thread();
        let now = Instant::now();
        Self {
            record,
            requested,
            image: caller.image(),
            process: Caller::process_and_parent(thread).map_or(thread, |(process, _)| process),
            thread_start: caller.stat().map(|stat| stat.start_time),
            requested_at: now,
            next_check: now + FIRST_CHECK,
        }
    }

    /// Whether the kernel has started the file that was checked, with the arguments that were read.
    /// For a script it starts the interpreter, with arguments that follow from the first line.
    pub fn is_as_requested(&self, caller: Caller, runs: Option<FileId>) -> bool {
        let requested = &self.requested;
        if runs.is_some() && runs == requested.file {
            return caller.arguments() == requested.arguments;
        }
        match (&requested.resolved, runs) {
            (ResolvedPath::File(_), Some(runs)) => caller.runs_script(requested, runs),
            // A program that could not be resolved before can't be identified now.
            (ResolvedPath::Unknown, None) => true,
            _ => false,
        }
    }

    /// Whether this is another program than the one that made the request.
    fn is_new(&self, image: Option<Image>) -> bool {
        image.is_some() && image != self.image
    }

    /// The result for a process that runs a new program. `None` while the kernel has not passed the
    /// arguments on yet: a program without arguments would be recorded.
    fn new_program(caller: Caller, early: bool) -> Option<StartResult> {
        // Read after the image, so that it belongs to the new program.
        let complete = caller.stat().is_some_and(|stat| stat.env_end != 0);
        (complete || !early).then_some(StartResult::Running(caller))
    }

    /// The result, if it can be known by now. A start has failed only if the thread runs its old
    /// program and waits in another call: a thread that is still in `execve` may succeed later.
    fn check(&self, thread: u32, now: Instant) -> Option<StartResult> {
        let caller = Caller::new(thread);
        let early = now < self.requested_at + TIMEOUT;
        let is_same = |stat: &ProcessStat| {
            let start = self.thread_start;
            start.is_none_or(|start| start == stat.start_time)
        };
        let Some(stat) = caller.stat().filter(is_same) else {
            // In `execve`, a thread takes the id of its process before the process gets its new
            // memory. So the old thread id can be gone while the start is still under way.
            let process = Caller::new(self.process);
            if self.process == thread || !process.is_alive() {
                return Some(StartResult::Gone);
            }
            return match process.image() {
                image if self.is_new(image) => Self::new_program(process, early),
                _ if early || process.activity() != Activity::Elsewhere => None,
                _ => Some(StartResult::Gone),
            };
        };
        if stat.has_ended() {
            // The program may have been started, and may have left children.
            return Some(StartResult::Gone);
        }
        match caller.image() {
            image if self.is_new(image) => Self::new_program(caller, early),
            Some(_) if !early && caller.activity() == Activity::Elsewhere => {
                Some(StartResult::Failed)
            }
            _ => None,
        }
    }
}

impl<T> Default for PendingStarts<T> {
    fn default() -> Self {
        Self {
            pending: HashMap::new(),
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> PendingStarts<T> {
    pub fn insert(&mut self, thread: u32, start: PendingStart<T>) {
        self.pending.insert(thread, start);
    }

    /// The answer did not reach the caller, so the kernel does not make this start.
    pub fn remove(&mut self, thread: u32) {
        self.pending.remove(&thread);
    }

    /// Takes the requests of a process that runs a new program: the one for this program, if there
    /// is one, and those of its other threads, which are gone and have failed. Nothing if the process
    /// runs the program that made the request, or a known one: it started nothing.
    pub fn take(
        &mut self,
        thread: u32,
        image: Option<Image>,
        runs: Option<FileId>,
    ) -> (Option<PendingStart<T>>, Vec<PendingStart<T>>) {
        if self.is_known(image) {
            return (None, Vec::new());
        }
        let is_taken = |number: &u32, start: &PendingStart<T>| {
            // In `execve`, a thread takes the id of its process.
            let own =
                *number == thread || start.process == thread && !Caller::new(*number).exists();
            own && start.is_new(image)
        };
        let mut all: Vec<PendingStart<T>> = self
            .pending
            .extract_if(|number, start| is_taken(number, start))
            .map(|(_, start)| start)
            .collect();
        let mut found = all.len().checked_sub(1);
        if all.len() > 1 {
            let caller = Caller::new(thread);
            let exact = |start: &PendingStart<T>| start.is_as_requested(caller, runs);
            let same = |start: &PendingStart<T>| runs.is_some() && start.requested.file == runs;
            let exact = all.iter().position(exact);
            found = exact.or_else(|| all.iter().position(same)).or(found);
        }
        (found.map(|index| all.swap_remove(index)), all)
    }

    /// Takes the earlier request of a thread that makes another one. If the thread still runs its old
    /// program, the earlier start has failed.
    pub fn settle(&mut self, caller: Caller) -> Option<(PendingStart<T>, StartResult)> {
        let start = self.pending.remove(&caller.thread())?;
        let seen = match caller.image() {
            image if image == start.image || self.is_known(image) => StartResult::Failed,
            _ => StartResult::Running(caller),
        };
        Some((start, seen))
    }

    /// Takes the request of a thread that makes another call while it still runs its old program: the
    /// start has failed.
    pub fn take_failed(&mut self, thread: u32, image: Option<Image>) -> Option<PendingStart<T>> {
        let start = self.pending.get(&thread)?;
        let same = image.is_some() && (image == start.image || self.is_known(image));
        same.then(|| self.pending.remove(&thread)).flatten()
    }

    /// Whether this program was recorded already.
    pub fn is_known(&self, image: Option<Image>) -> bool {
        image.is_some_and(|image| self.known.contains(&image))
    }

    pub fn remember(&mut self, image: Option<Image>) {
        let Some(image) = image.filter(|image| self.known.insert(*image)) else {
            return;
        };
        self.order.push_back(image);
        if self.order.len() > KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// When the next check is due.
    pub fn due(&self) -> Option<Instant> {
        self.pending.values().map(|start| start.next_check).min()
    }

    /// Takes all starts whose result is known by now.
    pub fn take_settled(&mut self, now: Instant) -> Vec<(PendingStart<T>, StartResult)> {
        let mut known = Vec::new();
        for (thread, start) in &mut self.pending {
            if start.next_check > now {
                continue;
            }
            match start.check(*thread, now) {
                // The running program was recorded already: another thread requested it.
                Some(StartResult::Running(caller))
                    if caller
                        .image()
                        .is_some_and(|image| self.known.contains(&image)) =>
                {
                    known.push((*thread, StartResult::Failed));
                }
                Some(seen) => known.push((*thread, seen)),
                None => {
                    let waited = now - start.requested_at;
                    start.next_check = now + waited.clamp(FIRST_CHECK, TIMEOUT);
                }
            }
        }
        let taken = known
            .into_iter()
            .filter_map(|(thread, seen)| Some((self.pending.remove(&thread)?, seen)));
        taken.collect()
    }

    /// The records of the starts whose result will not be known, because the execution is over.
    pub fn into_records(self) -> impl Iterator<Item = T> {
        self.pending.into_values().map(|start| start.record)
    }
}

#[cfg(test)]
mod tests;
