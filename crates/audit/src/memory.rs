use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::{Record, RecordError, Recorder};

/// The newest records, kept for the life of the process.
#[derive(Debug)]
pub struct MemoryLog {
    records: Mutex<VecDeque<Record>>,
    capacity: usize,
}

impl MemoryLog {
    /// Keeps at most this many records. The oldest is dropped for one more.
    pub fn new(capacity: usize) -> Self {
        Self {
            records: Mutex::default(),
            capacity,
        }
    }

    /// A copy of what is kept, oldest first.
    pub fn records(&self) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().cloned().collect()
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new(4096)
    }
}

impl Recorder for MemoryLog {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() == self.capacity {
            records.pop_front();
        }
        records.push_back(record);
        Ok(())
    }
}
