//! A change of the user's settings: recorded before it is made, and so is its failure.

use std::cell::Cell;
use std::sync::Arc;

use brig_audit::{Event, Record, RecordError, Recorder};
use brig_config::Error;
use jiff::Timestamp;

use crate::failure::Failure;
use crate::{recorder, user};

pub(crate) struct UserChange {
    recorder: Arc<dyn Recorder>,
    layer: &'static str,
    announced: Cell<bool>,
}

impl UserChange {
    pub(crate) fn of(layer: &'static str) -> Result<Self, Failure> {
        user::store_to_change()?;
        Ok(Self {
            recorder: recorder::open()?,
            layer,
            announced: Cell::new(false),
        })
    }

    pub(crate) fn announce(&self, added: Vec<String>, removed: Vec<String>) -> Result<(), String> {
        self.announced.set(true);
        let recorded = self.record(Event::AllowlistChanged {
            layer: self.layer.into(),
            added,
            removed,
        });
        recorded.map_err(|error| error.to_string())
    }

    /// What came of it.
    pub(crate) fn done<T>(&self, done: Result<T, Error>) -> Result<T, Failure> {
        match &done {
            Ok(_) | Err(Error::Unconfirmed { .. }) => {}
            Err(error) if self.announced.get() => {
                // The caller gets the first error.
                let _ = self.record(Event::OperationFailed {
                    of: "allowlist_changed".into(),
                    code: error.code().to_string(),
                    message: error.to_string(),
                });
            }
            Err(_) => {}
        }
        done.map_err(user::failed)
    }

    fn record(&self, event: Event) -> Result<(), RecordError> {
        self.recorder.append(Record {
            at: Timestamp::now(),
            agent: String::new(),
            session: String::new(),
            execution: None,
            event,
        })
    }
}
