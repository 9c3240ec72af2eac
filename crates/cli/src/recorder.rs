//! The audit log, opened when there is something to record.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use brig_audit::{Durability, Log, Options, Pending, Record, RecordError, Recorder};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::args::duration;
use crate::failure::Failure;
use crate::state;

/// When records are synced to disk: `always`, or within a time such as `1s`.
const SETTING: &str = "BRIG_AUDIT_SYNC";

/// Where attempts of the program go beside the log, for `--json=stream`.
static ATTEMPTS: OnceLock<UnboundedSender<Record>> = OnceLock::new();

/// What the program requests from now on, once it is recorded.
pub(crate) fn attempts() -> UnboundedReceiver<Record> {
    let (sender, receiver) = unbounded_channel();
    let _ = ATTEMPTS.set(sender);
    receiver
}

pub(crate) fn open() -> Result<Arc<dyn Recorder>, Failure> {
    let state = state::directory()?;
    state::of_this_user(&state)?;
    let path = state::audit_directory(&state);
    // Before anything is mounted. If it cannot be created, the first record reports it.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    Ok(Arc::new(LazyLog {
        path,
        options: options()?,
        log: OnceLock::new(),
    }))
}

pub(crate) fn options() -> Result<Options, Failure> {
    let durability = match std::env::var(SETTING).as_deref() {
        Err(_) | Ok("" | "always") => Durability::Always,
        Ok(text) => Durability::Interval(duration(text).map_err(|problem| {
            Failure::usage(format!("{SETTING} `{text}`: {problem}"))
                .with_hint("use `always`, or a time such as 1s")
        })?),
    };
    Ok(Options {
        durability,
        ..Options::default()
    })
}

#[derive(Debug)]
struct LazyLog {
    path: PathBuf,
    options: Options,
    log: OnceLock<Result<Log, RecordError>>,
}

impl Drop for LazyLog {
    fn drop(&mut self) {
        // Dropping a log waits for the disk. An interval is there to avoid that.
        if matches!(self.options.durability, Durability::Interval(_)) {
            std::mem::forget(self.log.take());
        }
    }
}

impl LazyLog {
    fn log(&self) -> Result<&Log, RecordError> {
        let open = || Ok(Log::open(&self.path, self.options)?);
        self.log.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    fn pending(&self, work: impl FnOnce(&Log) -> Pending) -> Pending {
        self.log()
            .map_or_else(|error| Pending::ready(Err(error)), work)
    }
}

impl Recorder for LazyLog {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        self.log()?.append(record)
    }

    fn begin(&self, records: Vec<Record>) -> Pending {
        self.pending(|log| log.begin(records))
    }

    fn note(&self, record: Record) -> Result<(), RecordError> {
        let Some(attempts) = ATTEMPTS.get() else {
            return self.log()?.note(record);
        };
        self.log()?.note(record.clone())?;
        let _ = attempts.send(record);
        Ok(())
    }

    fn conclude(&self, records: Vec<Record>) -> Pending {
        self.pending(|log| log.conclude(records))
    }
}
