//! Whether files can have changed since they were saved without a new time stamp.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use brig_linux::access::{Time, now};
use brig_wire::Writers as By;

use crate::lock;

/// Counts executions, which may have written to mapped files: such writes change time stamps late or never.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: u64,
    /// Those that are known to have ended with all their processes.
    ended: u64,
    saved: Option<Saved>,
    /// When the first began since then.
    first: Option<Time>,
}

/// The last save, if no execution was running meanwhile.
#[derive(Clone, Copy, Debug)]
struct Saved {
    /// How many executions had begun, and ended.
    ended: u64,
    /// The directory that it was made in.
    directory: Identity,
}

/// Device and inode. `None`: whoever saves knows by itself whether what it saved last is there.
type Identity = Option<(u64, u64)>;

/// How many executions had ended before a save began, if all had that had begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clean(Option<u64>);

/// Who can have written to files since they were saved the last time.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub by: By,
    /// From when on, by [`now`].
    pub from: Time,
}

impl Writers {
    /// Of files that were filled from what is saved already.
    pub(super) fn of_a_copy() -> Self {
        let saved = Some(Saved {
            ended: 0,
            directory: None,
        });
        Self(Mutex::new(Count {
            saved,
            ..Count::default()
        }))
    }

    pub(super) fn begin(&self) {
        let mut count = lock(&self.0);
        count.begun += 1;
        count.first.get_or_insert_with(now);
    }

    /// Not called for an abandoned execution: its end is not known.
    pub(super) fn end(&self) {
        lock(&self.0).ended += 1;
    }

    /// Who can have written to the files since the save that `into` will replace. If this save fails, it is not
    /// known what the next one finds.
    pub(super) fn before_a_save(&self, into: Option<&Path>) -> (Written, Clean) {
        let mut count = lock(&self.0);
        let last = into.map(|into| identity(&into.with_extension("")));
        let is_there = |saved: &Saved| match last {
            Some(last) => last.is_some() && saved.directory == last,
            None => true,
        };
        let by = match count.saved.take().filter(is_there) {
            Some(saved) if saved.ended == count.begun => By::None,
            Some(_) => By::Later,
            None => By::Any,
        };
        let from = count.first.unwrap_or_else(now);
        let clean = (count.begun == count.ended).then_some(count.begun);
        (Written { by, from }, Clean(clean))
    }

    /// The save that began then has succeeded.
    pub(super) fn saved(&self, Clean(ended): Clean, into: Option<&Path>) {
        let mut count = lock(&self.0);
        // One that began meanwhile may have mapped a file before it was looked at.
        let ended = ended.filter(|ended| *ended == count.begun);
        count.saved = ended.map(|ended| Saved {
            ended,
            directory: into.and_then(identity),
        });
        count.first = None;
    }
}

fn identity(folder: &Path) -> Identity {
    let found = folder.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_counts_only_if_nothing_ran_meanwhile_and_it_is_there() {
        let folder = tempfile::tempdir().expect("folder");
        let (head, next) = (folder.path().join("head"), folder.path().join("head.next"));
        std::fs::create_dir(&head).expect("folder");
        std::fs::create_dir(&next).expect("folder");
        let exchange = || {
            let aside = folder.path().join("aside");
            std::fs::rename(&head, &aside).expect("renamed");
            std::fs::rename(&next, &head).expect("renamed");
            std::fs::rename(&aside, &next).expect("renamed");
        };
        let writers = Writers::default();
        let save = || {
            let (written, clean) = writers.before_a_save(Some(&next));
            writers.saved(clean, Some(&next));
            exchange();
            written.by
        };
        assert_eq!(save(), By::Any, "nothing was saved yet");
        assert_eq!(save(), By::None);
        writers.begin();
        assert_eq!(save(), By::Later);
        assert_eq!(save(), By::Any, "it is still at it");
        writers.end();
        assert_eq!(save(), By::Any, "it may have had files mapped");
        assert_eq!(save(), By::None);
        writers.begin();
        writers.end();
        assert_eq!(save(), By::Later);

        let (_, clean) = writers.before_a_save(Some(&next));
        writers.begin();
        writers.saved(clean, Some(&next));
        exchange();
        writers.end();
        assert_eq!(save(), By::Any, "another began meanwhile");
        save();
        exchange();
        assert_eq!(save(), By::Any, "what was saved last is not there");
    }

    #[test]
    fn a_copy_begins_as_what_is_saved() {
        let writers = Writers::of_a_copy();
        let save = || {
            let (written, clean) = writers.before_a_save(None);
            writers.saved(clean, None);
            written.by
        };
        assert_eq!(save(), By::None);
        writers.begin();
        writers.end();
        assert_eq!(save(), By::Later);
        writers.begin();
        assert_eq!(save(), By::Later, "it had mapped nothing then");
        assert_eq!(save(), By::Any);
    }
}
