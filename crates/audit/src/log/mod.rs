//! The durable log.

mod back;
mod base;
mod directory;
mod error;
mod keys;
mod lines;
mod nodes;
mod open;
mod queue;
mod read;
mod segment;
mod shrink;
mod writer;

use std::path::Path;
use std::time::Duration;

pub use back::read_back;
pub use error::{LogError, Result};
pub use read::{Cursor, Snapshot};

pub(crate) use base::{Base, VERIFIED, is_signed, sign, unverified};
pub(crate) use keys::{check_rotation, is_rotation};
pub(crate) use lines::Lines;
pub(crate) use open::rebuilt_nodes;

use crate::canonical::Texts;
use crate::fit::{MOST, fit};
use crate::flood::Floods;
use crate::note::PublicKey;
use crate::{Pending, Record, RecordError, Recorder};
pub(crate) use lines::LONGEST;
use queue::{Queue, Want};
use writer::Writer;

/// When the records that end an execution are safe.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// Before the answer is given, even if the machine stops.
    #[default]
    Always,
    /// Before the answer is given if only this process stops; within this time, or when the log
    /// is dropped, if the machine does. A process that ends without dropping it leaves that to
    /// the next one that writes, or to the system.
    Interval(Duration),
}

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When the end of an execution must be on disk.
    pub durability: Durability,
    /// How large a segment may get before the next one is begun.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Always,
            segment_bytes: 64 << 20,
        }
    }
}

/// An append-only log in a directory. Any number of processes may have it open at once.
#[derive(Debug)]
pub struct Log {
    queue: Queue,
    durability: Durability,
    floods: Floods,
}

impl Log {
    /// Opens a log, or makes one. What a crash left unfinished is cut off; anything else that is
    /// wrong is an error, and nothing is written.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let writer = Writer::open(path.as_ref(), options)?;
        Ok(Self {
            queue: Queue::new(writer, options.durability),
            durability: options.durability,
            floods: Floods::default(),
        })
    }

    /// The signed head over everything that is in the log.
    pub fn head(&self) -> Result<String> {
        self.queue.head()
    }

    /// Replaces the key that signs heads. The old one is gone afterwards; a record that both
    /// have signed leads from one to the other. Returns the new one.
    pub fn rotate_key(&self) -> Result<PublicKey> {
        self.queue.rotate_key()
    }

    /// Removes the segments that a base replaces; returns the signed head after that. The one from
    /// before is kept next to the log if wanted.
    pub(crate) fn prune(&self, base: &Base, keep_head: bool) -> Result<String> {
        self.queue.prune(base, keep_head)
    }

    /// Keeps several records at once; waits until they are safe.
    pub fn append_all(&self, records: &[Record]) -> Result<(), RecordError> {
        self.queue.keep(&self.texts(records)?, Want::Synced)
    }

    fn texts(&self, records: &[Record]) -> Result<Texts, RecordError> {
        let mut texts = Texts::with_room(records.len());
        for record in records {
            for left_out in self.floods.ended(record) {
                add(&left_out, &mut texts)?;
            }
            add(record, &mut texts)?;
        }
        Ok(texts)
    }
}

impl Recorder for Log {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        self.append_all(&[record])
    }

    fn begin(&self, records: Vec<Record>) -> Pending {
        match self.texts(&records) {
            Ok(texts) => self.queue.start(&texts),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn note(&self, record: Record) -> Result<(), RecordError> {
        // Of a flood, only the number of records is kept.
        let Some(mut records) = self.floods.admit(&record) else {
            return Ok(());
        };
        records.push(record);
        self.queue.keep(&self.texts(&records)?, Want::Written)
    }

    fn conclude(&self, records: Vec<Record>) -> Pending {
        match self.durability {
            Durability::Always => self.begin(records),
            Durability::Interval(_) => {
                let texts = self.texts(&records);
                Pending::ready(texts.and_then(|texts| self.queue.keep(&texts, Want::Written)))
            }
        }
    }
}

fn add(record: &Record, texts: &mut Texts) -> Result<()> {
    let length = texts.add(record)?;
    if length > MOST {
        match fit(record, MOST)? {
            Some(shorter) => texts.replace_last(&shorter),
            None => return Err(LogError::TooLong(length)),
        }
    }
    Ok(())
}
