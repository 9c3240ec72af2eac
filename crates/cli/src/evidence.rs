//! The log that everything is recorded in, opened when there is something to record.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brig_audit::{Durability, Log, Options, Pending, Record, RecordError, Recorder};

use crate::args::duration;
use crate::failure::Failure;

/// How long results may wait for the disk: `always`, or a time such as `1s`.
const SETTING: &str = "BRIG_AUDIT_SYNC";

/// The folder of the log, below the one for everything.
pub fn folder(state: &Path) -> PathBuf {
    state.join("audit")
}

pub fn recorder(state: &Path) -> Result<Arc<dyn Recorder>, Failure> {
    let path = folder(state);
    // Before anything is mounted: only a folder that exists can be kept out of sandboxes. If it
    // cannot be made, the first record says so.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    Ok(Arc::new(Evidence {
        path,
        options: options()?,
        log: OnceLock::new(),
    }))
}

pub fn options() -> Result<Options, Failure> {
    let durability = match std::env::var(SETTING).as_deref() {
        Err(_) | Ok("" | "always") => Durability::Always,
        Ok(text) => Durability::Interval(duration(text).map_err(|problem| {
            Failure::usage(format!("{SETTING} `{text}`: {problem}"))
                .with_hint("it is `always`, or a time such as 1s")
        })?),
    };
    Ok(Options {
        durability,
        ..Options::default()
    })
}

#[derive(Debug)]
struct Evidence {
    path: PathBuf,
    options: Options,
    log: OnceLock<Result<Log, RecordError>>,
}

impl Drop for Evidence {
    fn drop(&mut self) {
        // Dropping a log waits for the disk, which is what an interval is to save.
        if matches!(self.options.durability, Durability::Interval(_)) {
            std::mem::forget(self.log.take());
        }
    }
}

impl Evidence {
    fn log(&self) -> Result<&Log, RecordError> {
        let open = || Ok(Log::open(&self.path, self.options)?);
        self.log.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    fn pending(&self, work: impl FnOnce(&Log) -> Pending) -> Pending {
        self.log()
            .map_or_else(|error| Pending::ready(Err(error)), work)
    }
}

impl Recorder for Evidence {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        self.log()?.append(record)
    }

    fn begin(&self, records: Vec<Record>) -> Pending {
        self.pending(|log| log.begin(records))
    }

    fn note(&self, record: Record) -> Result<(), RecordError> {
        self.log()?.note(record)
    }

    fn conclude(&self, records: Vec<Record>) -> Pending {
        self.pending(|log| log.conclude(records))
    }
}
