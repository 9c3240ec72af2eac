//! Keeps the newest receipts within reach, whatever else keeps the records. Older ones are read from the durable log
//! if there is one; otherwise they are counted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brig_audit::log::read_back;
use brig_audit::{Event, Log, LogError, Options, Pending, Record, RecordError, Recorder};
use pyo3::prelude::*;

use crate::error;
use crate::owned::Owned;

/// Receipts have excerpts of output and lists of connections, so their count alone limits nothing.
const MOST_BYTES: usize = 64 << 20;

/// Receipts of one sandbox, or of several that share them.
#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Receipts(Owned<Arc<Store>>);

#[pymethods]
impl Receipts {
    /// Keeps so many in memory, and no more than so many bytes of them as JSON.
    #[new]
    #[pyo3(signature = (kept, bytes=MOST_BYTES))]
    fn new(kept: usize, bytes: usize) -> Self {
        Self(Owned::new(Arc::new(Store {
            kept,
            bytes,
            log: Mutex::default(),
            newest: Mutex::default(),
        })))
    }

    /// All of them, or those of one session or execution, oldest first, as JSON; and how many more there were.
    #[pyo3(signature = (session, execution))]
    fn read(
        &self,
        py: Python<'_>,
        session: Option<&str>,
        execution: Option<&str>,
    ) -> PyResult<(String, u64)> {
        let store = self.store(py)?;
        let wanted = Wanted { session, execution };
        let read = py.detach(|| store.read(&wanted));
        let (found, gone) = read.map_err(|failed| {
            let code = failed.code().code();
            error::make(py, "audit", &failed.to_string(), code, None, None, "{}")
        })?;
        let text = serde_json::to_string(&found)
            .map_err(|failed| error::raise(py, error::invalid("receipts", failed)))?;
        Ok((text, gone))
    }
}

impl Receipts {
    pub(crate) fn store(&self, py: Python<'_>) -> PyResult<Arc<Store>> {
        self.0.get(py).map(Arc::clone)
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    kept: usize,
    bytes: usize,
    log: Mutex<Option<Arc<Durable>>>,
    newest: Mutex<Newest>,
}

/// The durable log.
#[derive(Debug)]
struct Durable {
    log: Log,
    path: PathBuf,
    /// The number of the first record that can be one of ours.
    begins: u64,
}

#[derive(Debug, Default)]
struct Newest {
    /// Each with its size.
    records: VecDeque<(Record, usize)>,
    bytes: usize,
    dropped: u64,
    /// How many of each session, if a log has them.
    dropped_of: HashMap<String, u64>,
}

#[derive(Debug)]
struct Wanted<'a> {
    session: Option<&'a str>,
    execution: Option<&'a str>,
}

impl Wanted<'_> {
    fn takes(&self, record: &Record) -> bool {
        self.session.is_none_or(|session| record.session == session)
            && (self.execution.is_none() || record.execution.as_deref() == self.execution)
    }
}

impl Store {
    /// Opens the log in that directory. Sandboxes that share their receipts share it too.
    pub(crate) fn open_log(&self, path: &Path) -> Result<(), RecordError> {
        let mut durable = lock(&self.log);
        if durable.is_some() {
            return Ok(());
        }
        let log = Log::open(path, Options::default())?;
        let mut begins = 0;
        let found = read_back(path, |line| {
            begins = line.seq + 1;
            false
        });
        match found {
            Ok(()) | Err(LogError::NoLog(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let path = path.to_owned();
        *durable = Some(Arc::new(Durable { log, path, begins }));
        Ok(())
    }

    fn log(&self) -> Option<Arc<Durable>> {
        lock(&self.log).clone()
    }

    fn read(&self, wanted: &Wanted<'_>) -> Result<(Vec<Record>, u64), LogError> {
        let (mut found, expected, dropped_of) = {
            let newest = lock(&self.newest);
            let found = newest
                .records
                .iter()
                .map(|(record, _)| record)
                .filter(|record| wanted.takes(record))
                .cloned()
                .collect::<Vec<_>>();
            if newest.dropped == 0 || (wanted.execution.is_some() && !found.is_empty()) {
                return Ok((found, 0));
            }
            let dropped = match wanted.session {
                Some(session) => newest.dropped_of.get(session).copied().unwrap_or(0),
                None => newest.dropped,
            };
            if self.log().is_none() {
                return Ok((found, newest.dropped));
            }
            let expected = found.len() as u64 + dropped;
            (found, expected, newest.dropped_of.clone())
        };
        if let Some(durable) = self.log() {
            let mut all = durable.older(wanted, &dropped_of, &found)?;
            all.append(&mut found);
            found = all;
        }
        let gone = match wanted.execution {
            Some(_) => 0,
            None => expected.saturating_sub(found.len() as u64),
        };
        Ok((found, gone))
    }

    fn keep(&self, records: &[Record]) {
        let receipts = records
            .iter()
            .filter(|record| matches!(record.event, Event::Receipt(_)));
        for record in receipts {
            let logged = self.log().is_some();
            // What can't be measured is not kept.
            let size = serde_json::to_vec(record).map_or(usize::MAX, |text| text.len());
            let mut newest = lock(&self.newest);
            newest.bytes = newest.bytes.saturating_add(size);
            newest.records.push_back((record.clone(), size));
            while (newest.records.len() > self.kept || newest.bytes > self.bytes)
                && let Some((oldest, size)) = newest.records.pop_front()
            {
                newest.bytes = newest.bytes.saturating_sub(size);
                newest.dropped += 1;
                if logged {
                    *newest.dropped_of.entry(oldest.session).or_default() += 1;
                }
            }
        }
    }
}

impl Durable {
    /// What is no longer in memory, oldest first.
    fn older(
        &self,
        wanted: &Wanted<'_>,
        dropped_of: &HashMap<String, u64>,
        in_memory: &[Record],
    ) -> Result<Vec<Record>, LogError> {
        let known: HashSet<(&str, Option<&str>)> = in_memory.iter().map(identity).collect();
        let mut older = Vec::new();
        read_back(&self.path, |line| {
            if line.seq < self.begins {
                return false;
            }
            if let Ok(record) = serde_json::from_str::<Record>(line.record)
                && matches!(record.event, Event::Receipt(_))
                && dropped_of.contains_key(&record.session)
                && wanted.takes(&record)
                && !known.contains(&identity(&record))
            {
                older.push(record);
            }
            wanted.execution.is_none() || older.is_empty()
        })?;
        older.reverse();
        Ok(older)
    }
}

fn identity(record: &Record) -> (&str, Option<&str>) {
    (&record.session, record.execution.as_deref())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder for Store {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        self.keep(std::slice::from_ref(&record));
        self.log()
            .map_or(Ok(()), |durable| durable.log.append(record))
    }

    fn begin(&self, records: Vec<Record>) -> Pending {
        self.keep(&records);
        match self.log() {
            Some(durable) => durable.log.begin(records),
            None => Pending::ready(Ok(())),
        }
    }

    fn note(&self, record: Record) -> Result<(), RecordError> {
        self.keep(std::slice::from_ref(&record));
        self.log()
            .map_or(Ok(()), |durable| durable.log.note(record))
    }

    fn conclude(&self, records: Vec<Record>) -> Pending {
        self.keep(&records);
        match self.log() {
            Some(durable) => durable.log.conclude(records),
            None => Pending::ready(Ok(())),
        }
    }
}
