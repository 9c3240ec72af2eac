//! Group commit: whoever waits for the disk takes along all who came meanwhile.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Durability;
use super::error::{LogError, Result};
use super::writer::Writer;
use crate::pending::Promise;
use crate::{Pending, RecordError};

/// How safe records must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Want {
    /// Against the end of this process.
    Written,
    /// Against the end of the machine.
    Synced,
}

#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    writer: Mutex<Writer>,
    path: PathBuf,
    /// How long something may be written without being synced.
    interval: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    /// Somebody is writing.
    busy: bool,
    /// Since when something is written that is not synced.
    unsynced: Option<Instant>,
    closed: bool,
}

/// Records that are written together.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<String>,
    sync: bool,
    /// Some of them nobody waits for in a thread of his own.
    unattended: bool,
    promise: Arc<Promise>,
}

impl Queue {
    pub fn new(writer: Writer, durability: Durability) -> Self {
        let interval = match durability {
            Durability::Always => None,
            Durability::Interval(interval) => Some(interval),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::new(),
                path: writer.folder.path().to_owned(),
                writer: Mutex::new(writer),
                interval,
            }),
            thread: Mutex::new(None),
        }
    }

    /// Waits until the records are as safe as wanted.
    pub fn keep(&self, records: Vec<String>, want: Want) -> Result<(), RecordError> {
        if want == Want::Written && self.shared.interval.is_some() {
            self.need_thread()?;
        }
        let mut state = self.shared.lock();
        let promise = state.waiting.add(records, want);
        loop {
            if let Some(answer) = promise.answer() {
                return answer;
            }
            state = if state.busy {
                self.shared.wait(state, None)
            } else {
                self.shared.lead(state)
            };
        }
    }

    /// Lets a thread of the log's own keep the records.
    pub fn start(&self, records: Vec<String>) -> Pending {
        if let Err(error) = self.need_thread() {
            return Pending::ready(Err(error.into()));
        }
        let mut state = self.shared.lock();
        let promise = state.waiting.add(records, Want::Synced);
        state.waiting.unattended = true;
        drop(state);
        self.shared.changed.notify_all();
        Pending::waiting(promise)
    }

    pub fn with_writer<T>(&self, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        work(&mut self.shared.writer())
    }

    fn need_thread(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = thread::Builder::new()
                .name("audit".into())
                .spawn(move || shared.attend());
            let wrong = LogError::io("start a thread for", &self.shared.path);
            *thread = Some(started.map_err(wrong)?);
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Batch {
    fn add(&mut self, records: Vec<String>, want: Want) -> Arc<Promise> {
        self.records.extend(records);
        self.sync |= want == Want::Synced;
        self.promise.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A writer changes its state only after the file has changed.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match limit {
            None => self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.changed
                    .wait_timeout(state, limit)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    /// Writes all that waits.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let batch = std::mem::take(&mut state.waiting);
        state.busy = true;
        drop(state);

        let answer = self.commit(&batch).map_err(RecordError::from);

        let mut state = self.lock();
        state.busy = false;
        state.unsynced = match &answer {
            Ok(()) if batch.sync => None,
            Ok(()) => state.unsynced.or_else(|| Some(Instant::now())),
            // Not again at once, and not for ever.
            Err(_) if state.closed => None,
            Err(_) => state.unsynced.map(|_| Instant::now()),
        };
        batch.promise.keep(&answer);
        self.changed.notify_all();
        state
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        let mut writer = self.writer();
        writer.write(&batch.records)?;
        if batch.sync {
            writer.sync()?;
        }
        Ok(())
    }

    /// The thread: keeps what nobody else does, and syncs what has waited long enough.
    fn attend(&self) {
        let mut state = self.lock();
        loop {
            let due = match (state.unsynced, self.interval) {
                (Some(since), Some(interval)) => Some(interval.saturating_sub(since.elapsed())),
                _ => None,
            };
            let sync = due.is_some_and(|due| due.is_zero() || state.closed);
            state = if state.busy {
                self.wait(state, None)
            } else if sync {
                state.waiting.sync = true;
                self.lead(state)
            } else if state.waiting.unattended {
                self.lead(state)
            } else if state.closed {
                return;
            } else {
                self.wait(state, due)
            };
        }
    }
}
