//! How the beginning of the log goes.

use super::base::{self, Base, PRUNED};
use super::error::{LogError, Result};
use super::segment::Segment;
use super::writer::{HEAD, Writer, own_record};
use crate::Event;
use crate::canonical::Texts;

impl Writer {
    /// Removes the segments of the records that a base replaces. The base is there before they
    /// are gone, and a record of it before that.
    pub(super) fn prune(&mut self, base: &Base, keep_head: bool) -> Result<String> {
        let _guard = self.directory.lock()?;
        self.go_on_with(&Texts::default())?;
        if keep_head {
            self.seal()?;
            let name = format!("head-{:020}", self.size());
            self.directory
                .replace(&name, self.sign(&self.frontier).as_bytes())?;
        }
        let done = Base::of_pruned(&self.directory)?.is_some_and(|(old, _)| old.size >= base.size);
        if !done {
            let record = own_record(Event::LogPruned {
                records: base.size,
                root: base.frontier().unwrap_or_default().root().base64(),
            })?;
            self.add([record.as_str()].into_iter())?;
        }
        self.seal()?;
        let head = self.sign(&self.frontier);
        if done {
            return Ok(head);
        }
        if let Some(file) = &self.head {
            file.sync_data()
                .map_err(LogError::io("sync", &self.directory.file(HEAD)))?;
        }
        let note = base::sign(base, PRUNED.1, &self.key)?;
        self.directory.replace(PRUNED.0, note.as_bytes())?;
        self.directory.remove_before(base.size)?;
        self.directory.sync()?;
        Ok(head)
    }

    /// Goes on after records that another process has pruned, together with their segment.
    pub(super) fn jump(&mut self) -> Result<()> {
        let Some((base, note)) = Base::of_pruned(&self.directory)? else {
            return Err(LogError::Replaced);
        };
        let (Some(frontier), Some(last)) = (base.frontier(), base.last()) else {
            return Err(LogError::Replaced);
        };
        if base.size <= self.size() || !base::is_signed(&note, [self.key.public()]) {
            return Err(LogError::Replaced);
        }
        self.segment = Segment::open(&self.directory, base.size)?;
        (self.frontier, self.last) = (frontier, last);
        Ok(())
    }
}
