//! Who waits for the disk, and when.
//!
//! Lines are written by one writer at a time, which takes microseconds. Then every writer requests a
//! sync, in parallel: the file system turns requests that overlap into one, and
//! a writer whose lines a later request has covered requests nothing.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Durability;
use super::base::Base;
use super::error::{LogError, Result};
use super::writer::Writer;
use crate::canonical::Texts;
use crate::note::PublicKey;
use crate::pending::Promise;
use crate::tree::Frontier;
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
    writer: Mutex<Writer>,
    /// The end of what is known to be safe.
    synced: Mutex<Frontier>,
    orders: Mutex<SyncQueue>,
    changed: Condvar,
    path: PathBuf,
    /// How long something may be written without being synced.
    interval: Option<Duration>,
}

/// What the log's own thread has to do.
#[derive(Debug, Default)]
struct SyncQueue {
    marks: Vec<(Mark, Arc<Promise>)>,
    /// The last write that no sync covers yet, and since when there is one.
    unsynced: Option<(Mark, Instant)>,
    closed: bool,
}

/// The end of the log at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub file: Arc<File>,
    pub frontier: Frontier,
}

impl Queue {
    pub(super) fn new(writer: Writer, durability: Durability) -> Self {
        let interval = match durability {
            Durability::Always => None,
            Durability::Interval(interval) => Some(interval),
        };
        Self {
            shared: Arc::new(Shared {
                path: writer.directory.path().to_owned(),
                writer: Mutex::new(writer),
                synced: Mutex::default(),
                orders: Mutex::default(),
                changed: Condvar::new(),
                interval,
            }),
            thread: Mutex::new(None),
        }
    }

    /// Returns when the records are as safe as wanted.
    pub(super) fn keep(&self, records: &Texts, want: Want) -> Result<(), RecordError> {
        let mark = self.shared.write(records)?;
        match want {
            Want::Synced => self.shared.sync(&mark)?,
            Want::Written if self.shared.interval.is_some() => {
                self.need_thread()?;
                let mut orders = self.shared.orders();
                let waiting = orders.unsynced.as_ref().map(|(_, since)| *since);
                orders.unsynced = Some((mark, waiting.unwrap_or_else(Instant::now)));
                drop(orders);
                // Otherwise the thread knows already when it has to look.
                if waiting.is_none() {
                    self.shared.changed.notify_all();
                }
            }
            Want::Written => {}
        }
        Ok(())
    }

    /// Writes the records, and lets a thread of the log's own wait for the disk.
    pub(super) fn start(&self, records: &Texts) -> Pending {
        let started = || -> Result<Pending> {
            self.need_thread()?;
            let mark = self.shared.write(records)?;
            let promise = Arc::new(Promise::default());
            self.shared.orders().marks.push((mark, promise.clone()));
            self.shared.changed.notify_all();
            Ok(Pending::waiting(promise))
        };
        started().unwrap_or_else(|error| Pending::ready(Err(error.into())))
    }

    pub(super) fn head(&self) -> Result<String> {
        self.shared.writer().head()
    }

    pub(super) fn rotate_key(&self) -> Result<PublicKey> {
        self.shared.writer().rotate_key()
    }

    pub(super) fn prune(&self, base: &Base, keep_head: bool) -> Result<String> {
        self.shared.writer().prune(base, keep_head)
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
        self.shared.orders().closed = true;
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

impl Shared {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A writer changes its state only after the file has changed.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orders(&self) -> MutexGuard<'_, SyncQueue> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, records: &Texts) -> Result<Mark> {
        self.writer().write(records)
    }

    /// Makes everything up to the mark safe, and signs for it.
    fn sync(&self, mark: &Mark) -> Result<()> {
        if self.synced().size() < mark.frontier.size() {
            if let Err(error) = mark.file.sync_data() {
                return Err(self.writer().give_up(error));
            }
            let mut synced = self.synced();
            if synced.size() < mark.frontier.size() {
                synced.clone_from(&mark.frontier);
            }
        }
        // Others may have come further while the writer was waited for: one head is enough.
        let mut writer = self.writer();
        let synced = self.synced().clone();
        writer.publish(&synced)
    }

    fn synced(&self) -> MutexGuard<'_, Frontier> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: syncs what others have ordered, and what has waited long enough.
    fn attend(&self) {
        let mut orders = self.orders();
        loop {
            let marks = std::mem::take(&mut orders.marks);
            if let Some((last, _)) = marks.iter().max_by_key(|(mark, _)| mark.frontier.size()) {
                drop(orders);
                let answer = self.sync(last).map_err(RecordError::from);
                marks.iter().for_each(|(_, promise)| promise.keep(&answer));
                orders = self.orders();
                continue;
            }
            let due = match (&orders.unsynced, self.interval) {
                (Some((_, since)), Some(interval)) => {
                    Some(interval.saturating_sub(since.elapsed()))
                }
                _ => None,
            };
            let closed = orders.closed;
            if due.is_some_and(|due| closed || due.is_zero())
                && let Some((mark, _)) = orders.unsynced.take()
            {
                drop(orders);
                // If it fails, nothing more can be written, and the next writer gets the error.
                let _ = self.sync(&mark);
                orders = self.orders();
            } else if closed {
                return;
            } else {
                orders = self.wait(orders, due);
            }
        }
    }

    fn wait<'a>(
        &self,
        orders: MutexGuard<'a, SyncQueue>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, SyncQueue> {
        let limit = limit.unwrap_or(Duration::MAX);
        let (orders, _) = self
            .changed
            .wait_timeout(orders, limit)
            .unwrap_or_else(PoisonError::into_inner);
        orders
    }
}
