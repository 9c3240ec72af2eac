//! The directory of one session, open in this process.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brig_layers::{merge, stacked, usage};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, fsync, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::atomic::{Put, put_json, read_json, sync_directory, write_json};
use super::flock::FileLock;
use super::head::Head;
use super::owner::OwnerFile;
use super::pool::{COLLECTING, Change};
use super::record::{LayerRef, SessionRecord};
use super::snapshots::head_snapshot;
use super::sweep::{is_missing, newest_inside};
use super::{Store, make_directory, make_one, remove_tree};
use crate::backend::{Lease, Options, Snapshot};
use crate::{AgentId, BackendId, Error, Result, SessionId};

/// More layers than this are merged when an instance starts.
const MAX_LAYERS: usize = 8;
/// They are also merged if what lies hidden in them is more than this part of what can still be
/// written.
const HIDDEN_SHARE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Home {
    pub store: Store,
    pub path: PathBuf,
    pub record: SessionRecord,
    /// Of an instance that another process can join.
    pub lease: Option<Lease>,
    /// The directory itself, whatever becomes of its path.
    directory: Arc<OwnedFd>,
    lock: FileLock,
}

/// What a backend keeps of a session.
#[derive(Debug)]
pub(crate) struct AtBackend {
    pub backend: BackendId,
    pub lease: Option<Lease>,
}

/// What came of trying to open a session.
pub(crate) enum Opening {
    Open(Box<Home>),
    Missing,
    /// Another process has it open.
    Busy {
        pid: Option<u32>,
    },
}

impl Store {
    /// Takes the name and makes the directory. It appears complete and locked, or not at all. It is a session from
    /// [`Home::created`] on, and until then goes with its lock.
    pub(crate) fn create(&self, record: SessionRecord) -> Result<Home> {
        let path = self.session_path(&record.agent, &record.id);
        (self.remove_abandoned(&record.agent, &record.id)).map_err(|e| failed(&record.id, e))?;
        let staging = self.fresh("staging");
        let made = self.stage(&staging, &record).and_then(|lock| {
            let directory = open_directory(&staging)?;
            self.publish(&staging, &path)?;
            Ok((lock.moved(path.join(LOCK)), directory))
        });
        match made {
            Ok((lock, directory)) => Ok(Home {
                store: self.clone(),
                path,
                record,
                lease: None,
                directory,
                lock,
            }),
            Err(error) => {
                let _ = fs::remove_dir_all(&staging);
                let there = self.read(&record.agent, &record.id);
                if error.kind() == io::ErrorKind::AlreadyExists {
                    // The notes may be those of the session that has the name, if it is the same.
                    if there.is_ok_and(|there| there.created != record.created) {
                        self.forget_record(&record);
                    }
                    return Err(Error::SessionExists {
                        session: record.id.to_string(),
                    });
                }
                self.forget_record(&record);
                Err(failed(&record.id, error))
            }
        }
    }

    fn stage(&self, staging: &Path, record: &SessionRecord) -> io::Result<FileLock> {
        // A directory that is not locked is swept, unless somebody has this lock.
        let swept = FileLock::shared(&self.pool_lock(), COLLECTING)?;
        make_directory(staging)?;
        let lock = FileLock::create(&staging.join(LOCK))?;
        drop(swept);
        make_directory(&staging.join(CHECKPOINTS))?;
        make_directory(&head_path(staging, record.head))?;
        write_json(&staging.join(RECORD), record)?;
        File::create_new(staging.join(CREATING))?;
        // From its first moment on others can see who has it.
        OwnerFile::write(staging, None)?;
        self.note(record, &record.layers)?;
        Ok(lock)
    }

    fn publish(&self, staging: &Path, path: &Path) -> io::Result<()> {
        let agent = path.parent().unwrap_or(path);
        loop {
            make_directory(agent)?;
            match renameat_with(CWD, staging, CWD, path, RenameFlags::NOREPLACE) {
                Ok(()) => return sync_directory(agent),
                // The last other session of the agent went, and the directory with it.
                Err(Errno::NOENT) if staging.exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What the files of a session take.
    pub(crate) fn bytes(&self, record: &SessionRecord) -> u64 {
        let path = self.session_path(&record.agent, &record.id);
        let head = match record.snapshots {
            true => head_snapshot(&head_path(&path, record.head)).ok().flatten(),
            false => None,
        };
        match head {
            // It has all files.
            Some(snapshot) => snapshot.bytes,
            None if record.snapshots => record.bytes(),
            None => record.bytes() + self.head_bytes(record),
        }
    }

    /// What the files above its layers take.
    pub(crate) fn head_bytes(&self, record: &SessionRecord) -> u64 {
        let path = self.session_path(&record.agent, &record.id);
        usage(&head_path(&path, record.head)).unwrap_or(0)
    }

    /// The number of the next execution of a session, whichever process asks: one byte is added
    /// to a file for each, and where it lands is the number. Nothing if the session is gone.
    pub(crate) fn next_step(&self, agent: &AgentId, id: &SessionId) -> Result<Option<u64>> {
        let path = self.session_path(agent, id).join(STEPS);
        let add = || -> io::Result<u64> {
            let mut file = File::options().append(true).create(true).open(path)?;
            file.write_all(b".")?;
            Ok(file.stream_position()?.saturating_sub(1))
        };
        match add() {
            Ok(step) => Ok(Some(step)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(id, error)),
        }
    }

    pub(crate) fn try_open(&self, agent: &AgentId, id: &SessionId) -> Result<Opening> {
        let path = self.session_path(agent, id);
        if !path.join(RECORD).exists() {
            return Ok(Opening::Missing);
        }
        let lock = match FileLock::try_exclusive(&path.join(LOCK)) {
            // Whoever was about to create it gave up.
            Ok(Some(_)) if path.join(CREATING).exists() => return Ok(Opening::Missing),
            Ok(Some(lock)) => lock,
            Ok(None) => {
                return Ok(Opening::Busy {
                    pid: OwnerFile::read(&path).map(|owner| owner.owner.pid),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opening::Missing),
            Err(error) => return Err(failed(id, error)),
        };
        let directory = match open_directory(&path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opening::Missing),
            Err(error) => return Err(failed(id, error)),
        };
        // Looked at last, so that the directory is the one that is locked.
        if !lock.in_place() {
            return Ok(Opening::Missing);
        }
        let record = SessionRecord::read(&path.join(RECORD)).map_err(|error| failed(id, error))?;
        let home = Home {
            store: self.clone(),
            lease: read_lease(&path),
            path,
            record,
            directory,
            lock,
        };
        self.seen(&home.record);
        home.tidy()
            .and_then(|()| OwnerFile::write(&home.path, None))
            .map_err(|e| home.failed(e))?;
        Ok(Opening::Open(Box::new(home)))
    }

    /// What only the backend can remove of a session.
    pub(crate) fn at_backend(&self, agent: &AgentId, id: &SessionId) -> Option<AtBackend> {
        let path = self.session_path(agent, id);
        let record = SessionRecord::read(&path.join(RECORD)).ok()?;
        let lease = read_lease(&path);
        (record.snapshots || lease.is_some()).then_some(AtBackend {
            backend: record.backend,
            lease,
        })
    }

    /// Refuses a session whose processes can't be ended from here. Its lock says whether it has any, not a process id.
    /// Returns the lock if nobody has it.
    fn can_be_ended(&self, session: &Path, id: &SessionId) -> Result<Option<FileLock>> {
        let lock = match FileLock::try_exclusive(&session.join(LOCK)) {
            // What has gone is noticed when it is renamed.
            Err(error) if is_missing(&error) => return Ok(None),
            lock => lock.map_err(|error| failed(id, error))?,
        };
        let elsewhere = || OwnerFile::read(session).is_some_and(|owner| owner.is_elsewhere());
        if lock.is_none() && elsewhere() {
            let problem = "a process in another PID namespace has it open (a container that shares the state \
                           directory); destroy it there";
            return Err(busy(id, problem));
        }
        Ok(lock)
    }

    /// Held while a session is changed or destroyed. Nothing if there is no such session.
    pub(super) fn lock_changes(&self, session: &Path, id: &SessionId) -> Result<Option<FileLock>> {
        loop {
            return match FileLock::within(
                &session.join(CHANGE),
                CHANGE_PATIENCE,
                "saves or restores files of the session",
            ) {
                // Another session may have got the name meanwhile.
                Ok(Some(lock)) if !lock.in_place() => continue,
                Ok(Some(lock)) => Ok(Some(lock)),
                Ok(None) => Err(busy(id, "its files are being saved or restored")),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(failed(id, error)),
            };
        }
    }

    /// Ends a session, whoever has it open in this PID namespace, and removes it. Returns whether there was one.
    pub(crate) fn destroy(&self, agent: &AgentId, id: &SessionId) -> Result<bool> {
        self.remove(agent, id, Removal::default())
    }

    /// The same under conditions.
    pub(crate) fn remove(
        &self,
        agent: &AgentId,
        id: &SessionId,
        removal: Removal<'_>,
    ) -> Result<bool> {
        let path = self.session_path(agent, id);
        let Some(changing) = self.lock_changes(&path, id)? else {
            return Ok(false);
        };
        // From here on nobody else destroys it.
        if removal.only.is_some_and(|home| !home.in_place()) {
            return Ok(false);
        }
        // Without layers nothing is left over. What can't be read may have some.
        let layers = self.layers_of(&path).map_or(1, |layers| layers.len());
        let change = match layers {
            0 => None,
            _ => Some(self.change()?.of_session(changing)),
        };
        let record = self.read(agent, id);
        let away = self.fresh_session_in_trash();
        // Held until it has no name, so that nobody opens it.
        let opened = self.can_be_ended(&path, id)?;
        if let Some(before) = removal.unused_since
            && (opened.is_none() || newest_inside(&path) >= before)
        {
            return Err(busy(id, "it is in use"));
        }
        // From here on its owner finds it gone, and can't write to it any more.
        match fs::rename(&path, &away) {
            Ok(()) => {}
            Err(error) if is_missing(&error) && matches!(self.has(agent, id), Ok(false)) => {
                if let Some(change) = change {
                    change.finish();
                }
                return Ok(false);
            }
            Err(error) => return Err(failed(id, error)),
        }
        drop(opened);
        if let Ok(record) = record {
            self.forget(agent, id, &record);
        }
        let removed = OwnerFile::kill_instance(&away).and_then(|()| remove_tree(&away));
        if let Some(agent) = path.parent() {
            // Fails while there are others, as it should.
            let _ = fs::remove_dir(agent);
        }
        // Without that, its mark stays.
        if let Some(change) = change.filter(|_| !removal.collects_later) {
            change.collect();
        }
        removed.map_err(|error| Error::Incomplete {
            done: format!("session `{id}` is destroyed"),
            problem: "not all of it could be removed, which is tried again at the next start",
            source: Box::new(failed(id, error)),
        })?;
        Ok(true)
    }
}

/// How a session is removed.
#[derive(Debug, Default)]
pub(crate) struct Removal<'a> {
    /// Without looking for layers that nobody needs any more: the next collection does.
    pub collects_later: bool,
    /// Only this one: another may have got its name.
    pub only: Option<&'a Home>,
    /// Only if nobody has it open, and it was not used since.
    pub unused_since: Option<SystemTime>,
}

/// Each layer once, where it is on top. Below that it changes nothing: whatever it has, covers or
/// removes is had, covered or removed above. An overlay does not take a directory twice.
fn distinct(layers: Vec<LayerRef>) -> Vec<LayerRef> {
    let mut kept: Vec<LayerRef> = Vec::with_capacity(layers.len());
    for layer in layers {
        kept.retain(|other| other.digest != layer.digest);
        kept.push(layer);
    }
    kept
}

impl Home {
    /// To change the session, with its layers.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        let changing = self.lock_changes()?;
        Ok(self.store.change()?.of_session(changing))
    }

    /// While it is held, nobody destroys the session.
    fn lock_changes(&self) -> Result<FileLock> {
        let changing = self.store.lock_changes(&self.path, &self.record.id)?;
        let changing = changing.filter(|_| self.in_place());
        changing.ok_or_else(|| self.gone())
    }

    /// Everything that belongs to a new session was done, and from now on it is there.
    pub(crate) fn created(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&self.directory, c".", flags, Mode::empty());
        let directory = opened.map_err(|error| self.failed(error.into()))?;
        // In this directory, whatever has its name by now.
        match unlinkat(&directory, CREATING, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(self.failed(error.into())),
            _ => {}
        }
        if !self.in_place() {
            return Err(self.gone());
        }
        fsync(directory).map_err(|error| {
            let done = format!("session `{}` is created", self.record.id);
            Error::unconfirmed(done, error.into())
        })
    }

    fn gone(&self) -> Error {
        Error::NoSession {
            agent: self.record.agent.to_string(),
            session: self.record.id.to_string(),
        }
    }

    /// Whether the session was not destroyed by another process.
    pub(crate) fn in_place(&self) -> bool {
        self.lock.in_place()
    }

    pub(crate) fn head(&self) -> Head {
        let backend = || (self.store.clone(), self.record.backend.clone());
        let snapshots = self.record.snapshots.then(backend);
        let name = head_name(self.record.head);
        Head::at(&self.directory, &self.path, name, snapshots)
    }

    /// What the backend keeps of the session's files.
    pub(crate) fn snapshot(&self) -> Result<Option<Snapshot>> {
        let head = head_snapshot(self.head().path()).map_err(|error| self.failed(error))?;
        let last = || self.record.layers.last()?.snapshot.clone();
        Ok(head.or_else(last))
    }

    /// Keeps the lease of its instance, or forgets it.
    pub(crate) fn set_lease(&mut self, lease: Option<Lease>) -> Result<()> {
        if lease.is_none() && self.lease.is_none() {
            return Ok(());
        }
        let _changing = self.lock_changes()?;
        let path = self.path.join(LEASE);
        let done = match (&lease, &self.lease) {
            (Some(lease), _) => write_json(&path, lease),
            (None, Some(_)) => match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            },
            (None, None) => Ok(()),
        };
        done.map_err(|error| self.failed(error))?;
        self.lease = lease;
        Ok(())
    }

    pub(crate) fn layer_paths(&self) -> Vec<PathBuf> {
        self.record
            .layers
            .iter()
            .map(|layer| self.store.layer_path(layer))
            .collect()
    }

    /// Keeps options that the files depend on, from the first time on.
    pub(crate) fn pin(&mut self, options: Options) -> Result<()> {
        if self.record.pinned == options {
            return Ok(());
        }
        let _changing = self.lock_changes()?;
        let record = SessionRecord {
            pinned: options,
            ..self.record.clone()
        };
        write_json(&self.path.join(RECORD), &record).map_err(|error| self.failed(error))?;
        self.record = record;
        Ok(())
    }

    pub(crate) fn started(&self, instance: Option<u32>) -> Result<()> {
        let _changing = self.lock_changes()?;
        OwnerFile::write(&self.path, instance).map_err(|error| self.failed(error))
    }

    pub(crate) fn busy_file(&self) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(&self.directory, BUSY, flags, Mode::RUSR | Mode::WUSR);
        Ok(file.map_err(|error| self.failed(error.into()))?.into())
    }

    /// The layers with the head on top of them, as they would be saved now.
    pub(crate) fn frozen(&self, change: &Change<'_>) -> Result<Vec<LayerRef>> {
        if self.record.snapshots {
            return Ok(self.snapshot()?.map(LayerRef::of).into_iter().collect());
        }
        let mut layers = self.record.layers.clone();
        if let Some(head) = self.filled_head()? {
            layers.push(change.freeze(&head)?);
        }
        Ok(distinct(layers))
    }

    /// The head, unless it is empty.
    pub(crate) fn filled_head(&self) -> Result<Option<PathBuf>> {
        let head = self.head();
        let empty = is_empty(head.path()).map_err(|error| self.failed(error))?;
        Ok((!empty).then(|| head.path().to_owned()))
    }

    /// Whether there is nothing for [`Home::settle`] to do.
    pub(crate) fn is_settled(&self) -> bool {
        self.record.layers.len() <= MAX_LAYERS
            && is_empty(self.head().path()).unwrap_or(false)
            && distinct(self.record.layers.clone()) == self.record.layers
    }

    /// Makes the head a layer, so that an instance can start above it.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let (store, changing) = (self.store.clone(), self.lock_changes()?);
        let change = store.change()?.of_session(changing);
        let mut layers = self.frozen(&change)?;
        let merged = layers.len() > MAX_LAYERS || self.hides_much(&layers);
        if merged {
            layers = vec![change.merge(&layers)?];
        }
        if layers != self.record.layers || self.filled_head()?.is_some() {
            let put = self.rebase(layers)?;
            self.safe(put)?;
        }
        match merged {
            true => change.collect(),
            false => change.finish(),
        }
        Ok(())
    }

    /// Whether files that were replaced or removed, and still lie in a layer, take much of what the
    /// session may store.
    fn hides_much(&self, layers: &[LayerRef]) -> bool {
        let saved: u64 = layers.iter().map(|layer| layer.bytes).sum();
        let room = self
            .record
            .config
            .limits
            .disk_bytes
            .value
            .saturating_sub(saved);
        let much = |hidden: u64| hidden > room / HIDDEN_SHARE;
        if layers.len() < 2 || !much(saved) {
            return false;
        }
        let paths: Vec<PathBuf> = (layers.iter())
            .map(|layer| self.store.layer_path(layer))
            .collect();
        // What can't be told counts as hidden.
        much(saved.saturating_sub(stacked(&paths).unwrap_or(0)))
    }

    /// Whether there is nothing for [`Home::flatten`] to do.
    pub(crate) fn is_flat(&self) -> bool {
        self.record.layers.is_empty()
    }

    /// Puts everything into the head, so that an instance can start from a copy of it.
    pub(crate) fn flatten(&mut self) -> Result<()> {
        let (store, changing) = (self.store.clone(), self.lock_changes()?);
        let change = store.change()?.of_session(changing);
        let mut all = self.layer_paths();
        all.extend(self.filled_head()?);
        let (record, put) = self.replace(Vec::new(), |head| {
            merge(&all, head).map_err(|error| self.failed(error))?;
            change.sync()
        })?;
        self.adopt(record);
        change.collect();
        self.safe(put)
    }

    /// Goes back to a saved state. The layers that were in use before may be in use no more.
    pub(crate) fn restore(&mut self, layers: Vec<LayerRef>) -> Result<()> {
        let (store, changing) = (self.store.clone(), self.lock_changes()?);
        let change = store.change()?.of_session(changing);
        let put = self.rebase(layers)?;
        change.collect();
        put.confirmed(|| format!("session `{}` is restored", self.record.id))
    }

    /// Stands on other layers from now on, with an empty head.
    fn rebase(&mut self, layers: Vec<LayerRef>) -> Result<Put> {
        let (record, put) = self.replace(layers, |_| Ok(()))?;
        self.adopt(record);
        Ok(put)
    }

    /// For what is done on the way to something else.
    fn safe(&self, put: Put) -> Result<()> {
        match put {
            Put::Safe => Ok(()),
            Put::Unconfirmed(error) => Err(self.failed(error)),
        }
    }

    /// Other layers, and a head that `fill` fills. Old or new, never a mixture.
    fn replace(
        &self,
        layers: Vec<LayerRef>,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<(SessionRecord, Put)> {
        let record = SessionRecord {
            layers,
            head: self.record.head + 1,
            ..self.record.clone()
        };
        let head = head_path(&self.path, record.head);
        let failed = |error| self.failed(error);
        // An attempt that failed may have left a part of it.
        self.store.discard(&head).map_err(failed)?;
        make_one(&head).map_err(failed)?;
        fill(&head)?;
        self.store.note(&record, &record.layers).map_err(failed)?;
        let put = put_json(&self.path.join(RECORD), &record).map_err(failed)?;
        Ok((record, put))
    }

    fn adopt(&mut self, record: SessionRecord) {
        self.record = record;
        // What is left of the old head is removed when the session is opened next.
        let _ = self.tidy();
    }

    /// Removes what an interrupted call left: heads that are not the head.
    fn tidy(&self) -> io::Result<()> {
        let head = self.head();
        make_one(head.path())?;
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            if name.is_some_and(|name| name.starts_with(HEAD)) && path != head.path() {
                self.store.discard(&path)?;
            }
        }
        Ok(())
    }

    pub(crate) fn failed(&self, error: io::Error) -> Error {
        failed(&self.record.id, error)
    }
}

pub(super) const RECORD: &str = "session.json";
pub(super) const LOCK: &str = "lock";
pub(super) const LEASE: &str = "lease.json";
pub(super) const BUSY: &str = "busy";
pub(super) const CHANGE: &str = "change";
/// How long to wait for somebody who changes the session.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
const STEPS: &str = "steps";
/// In a session that is not created yet. Without its lock, nobody comes back to it.
pub(super) const CREATING: &str = "creating";
pub(super) const CHECKPOINTS: &str = "checkpoints";
const HEAD: &str = "head-";

/// Whether the directory is what is left of a session that was never created.
pub(super) fn is_abandoned(session: &Path) -> bool {
    take_abandoned(session).is_some()
}

/// The lock of what is left of a session that was never created. While it is held, nobody creates it to its end or removes
/// it.
pub(super) fn take_abandoned(session: &Path) -> Option<FileLock> {
    let creating = session.join(CREATING);
    if !creating.exists() {
        return None;
    }
    // What can't be locked may be in use.
    let lock = FileLock::try_existing(&session.join(LOCK)).ok()??;
    // Whoever had it may have come to the end meanwhile.
    (creating.exists() && lock.in_place()).then_some(lock)
}

/// Without one that can be read, the instance ends by itself.
fn read_lease(session: &Path) -> Option<Lease> {
    read_json(&session.join(LEASE)).ok()
}

fn head_name(number: u64) -> String {
    format!("{HEAD}{number}")
}

pub(super) fn head_path(path: &Path, number: u64) -> PathBuf {
    path.join(head_name(number))
}

fn open_directory(path: &Path) -> io::Result<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Arc::new(rustix::fs::open(path, flags, Mode::empty())?))
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

fn busy(id: &SessionId, problem: &str) -> Error {
    Error::SessionBusy {
        session: id.to_string(),
        problem: problem.into(),
    }
}

fn failed(id: &SessionId, error: io::Error) -> Error {
    Error::io(format!("session `{id}`"), error)
}
