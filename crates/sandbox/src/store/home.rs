//! The folder of one session, open in this process.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::atomic::{read_json, sync_folder, write_json};
use super::flock::FileLock;
use super::head::Head;
use super::owner::Owner;
use super::pool::Pool;
use super::record::{LayerRef, SessionRecord};
use super::{Store, make_folder};
use crate::layers::{merge, usage};
use crate::{AgentId, Error, Result, SessionId};

/// More layers than this are merged when an instance starts.
const MAX_LAYERS: usize = 8;

#[derive(Debug)]
pub(crate) struct Home {
    pub store: Store,
    pub path: PathBuf,
    pub record: SessionRecord,
    /// The folder itself, whatever becomes of its path.
    folder: Arc<OwnedFd>,
    lock: FileLock,
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
    /// Takes the name and makes the folder. It appears complete and locked, or not at all.
    pub fn create(&self, record: SessionRecord) -> Result<Home> {
        let path = self.session_path(&record.agent, &record.id);
        let staging = self.fresh("staging");
        let made = self.stage(&staging, &record).and_then(|lock| {
            let folder = open_folder(&staging)?;
            self.publish(&staging, &path)?;
            Ok((lock.moved(path.join(LOCK)), folder))
        });
        match made {
            Ok((lock, folder)) => Ok(Home {
                store: self.clone(),
                path,
                record,
                folder,
                lock,
            }),
            Err(error) => {
                let _ = fs::remove_dir_all(&staging);
                if error.kind() == io::ErrorKind::AlreadyExists {
                    return Err(Error::SessionExists {
                        session: record.id.to_string(),
                    });
                }
                Err(failed(&record.id, error))
            }
        }
    }

    fn stage(&self, staging: &Path, record: &SessionRecord) -> io::Result<FileLock> {
        make_folder(staging)?;
        let lock =
            FileLock::try_exclusive(&staging.join(LOCK))?.ok_or(io::ErrorKind::WouldBlock)?;
        make_folder(&staging.join(CHECKPOINTS))?;
        make_folder(&head_path(staging, record.head))?;
        write_json(&staging.join(RECORD), record)?;
        Ok(lock)
    }

    fn publish(&self, staging: &Path, path: &Path) -> io::Result<()> {
        let agent = path.parent().unwrap_or(path);
        loop {
            make_folder(agent)?;
            match renameat_with(CWD, staging, CWD, path, RenameFlags::NOREPLACE) {
                Ok(()) => return sync_folder(agent),
                // The last other session of the agent went, and the folder with it.
                Err(Errno::NOENT) if staging.exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What the files above its layers take.
    pub fn head_bytes(&self, record: &SessionRecord) -> u64 {
        let path = self.session_path(&record.agent, &record.id);
        usage(&head_path(&path, record.head)).unwrap_or(0)
    }

    /// The number of the next execution of a session, whichever process asks: one byte is added
    /// to a file for each, and where it lands is the number. Nothing if the session is gone.
    pub fn next_step(&self, agent: &AgentId, id: &SessionId) -> Result<Option<u64>> {
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

    pub fn try_open(&self, agent: &AgentId, id: &SessionId) -> Result<Opening> {
        let path = self.session_path(agent, id);
        if !path.join(RECORD).exists() {
            return Ok(Opening::Missing);
        }
        let lock = match FileLock::try_exclusive(&path.join(LOCK)) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                return Ok(Opening::Busy {
                    pid: Owner::read(&path).map(|owner| owner.owner.pid),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opening::Missing),
            Err(error) => return Err(failed(id, error)),
        };
        let folder = match open_folder(&path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opening::Missing),
            Err(error) => return Err(failed(id, error)),
        };
        // Looked at last, so that the folder is the one that is locked.
        if !lock.in_place() {
            return Ok(Opening::Missing);
        }
        let record: SessionRecord =
            read_json(&path.join(RECORD)).map_err(|error| failed(id, error))?;
        if record.version != SessionRecord::VERSION {
            let problem = format!("it was written in format {}", record.version);
            return Err(failed(id, io::Error::other(problem)));
        }
        let home = Home {
            store: self.clone(),
            path,
            record,
            folder,
            lock,
        };
        home.tidy()
            .and_then(|()| Owner::write(&home.path, None))
            .map_err(|e| home.failed(e))?;
        Ok(Opening::Open(Box::new(home)))
    }

    /// Ends a session, whoever has it open, and removes it. Says whether there was one.
    pub fn destroy(&self, agent: &AgentId, id: &SessionId) -> Result<bool> {
        let path = self.session_path(agent, id);
        let away = self.fresh("trash");
        // From here on its owner finds it gone, and can't write to it any more.
        match fs::rename(&path, &away) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(id, error)),
        }
        Owner::kill_instance(&away).map_err(|error| failed(id, error))?;
        let had_layers = self
            .layers_of(&away)
            .map_or(true, |layers| !layers.is_empty());
        fs::remove_dir_all(&away).map_err(|error| failed(id, error))?;
        if let Some(agent) = path.parent() {
            // Fails while there are others, as it should.
            let _ = fs::remove_dir(agent);
        }
        if had_layers {
            self.collect().map_err(|error| failed(id, error))?;
        }
        Ok(true)
    }
}

impl Home {
    /// Whether the session was not destroyed by another process.
    pub fn in_place(&self) -> bool {
        self.lock.in_place()
    }

    pub fn head(&self) -> Head {
        Head::at(&self.folder, &self.path, head_name(self.record.head))
    }

    pub fn layer_paths(&self) -> Vec<PathBuf> {
        self.record
            .layers
            .iter()
            .map(|layer| self.store.layer_path(layer))
            .collect()
    }

    /// From the first time on.
    pub fn set_base(&mut self, base: &str) -> Result<()> {
        if self.record.base.as_deref() == Some(base) {
            return Ok(());
        }
        let record = SessionRecord {
            base: Some(base.to_owned()),
            ..self.record.clone()
        };
        write_json(&self.path.join(RECORD), &record).map_err(|error| self.failed(error))?;
        self.record = record;
        Ok(())
    }

    pub fn started(&self, instance: Option<u32>) -> Result<()> {
        Owner::write(&self.path, instance).map_err(|error| self.failed(error))
    }

    pub fn busy_file(&self) -> Result<File> {
        let path = self.path.join(BUSY);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        file.map_err(|error| self.failed(error))
    }

    /// The layers with the head on top of them, as they would be saved now.
    pub fn frozen(&self, pool: &Pool<'_>) -> Result<Vec<LayerRef>> {
        let mut layers = self.record.layers.clone();
        if let Some(head) = self.filled_head()? {
            layers.push(pool.freeze(&head)?);
        }
        Ok(layers)
    }

    /// The head, unless it is empty.
    pub fn filled_head(&self) -> Result<Option<PathBuf>> {
        let head = self.head();
        let empty = is_empty(head.path()).map_err(|error| self.failed(error))?;
        Ok((!empty).then(|| head.path().to_owned()))
    }

    /// Whether there is nothing for [`Home::settle`] to do.
    pub fn is_settled(&self) -> bool {
        self.record.layers.len() <= MAX_LAYERS && is_empty(self.head().path()).unwrap_or(false)
    }

    /// Makes the head a layer, so that an instance can start above it.
    pub fn settle(&mut self) -> Result<()> {
        let store = self.store.clone();
        let pool = store.pool()?;
        let mut layers = self.frozen(&pool)?;
        if layers.len() > MAX_LAYERS {
            layers = vec![pool.merge(&layers)?];
        }
        if layers != self.record.layers {
            self.rebase(layers)?;
        }
        Ok(())
    }

    /// Whether there is nothing for [`Home::flatten`] to do.
    pub fn is_flat(&self) -> bool {
        self.record.layers.is_empty()
    }

    /// Puts everything into the head, so that an instance can start from a copy of it.
    pub fn flatten(&mut self) -> Result<()> {
        let store = self.store.clone();
        let pool = store.pool()?;
        let mut all = self.layer_paths();
        all.extend(self.filled_head()?);
        self.replace(Vec::new(), |head| {
            merge(&all, head).map_err(|error| self.failed(error))?;
            pool.sync()
        })
        .and_then(|record| self.adopt(record))?;
        drop(pool);
        // Perhaps nobody else needs them, and nobody would look for them later.
        store.collect().map_err(|error| self.failed(error))
    }

    /// Stands on other layers from now on, with an empty head.
    pub fn rebase(&mut self, layers: Vec<LayerRef>) -> Result<()> {
        let record = self.replace(layers, |_| Ok(()))?;
        self.adopt(record)
    }

    /// Other layers, and a head that `fill` fills. Old or new, never a mixture.
    fn replace(
        &self,
        layers: Vec<LayerRef>,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<SessionRecord> {
        let record = SessionRecord {
            layers,
            head: self.record.head + 1,
            ..self.record.clone()
        };
        let head = head_path(&self.path, record.head);
        let failed = |error| self.failed(error);
        // An attempt that failed may have left a part of it.
        self.store.discard(&head).map_err(failed)?;
        make_folder(&head).map_err(failed)?;
        fill(&head)?;
        write_json(&self.path.join(RECORD), &record).map_err(failed)?;
        Ok(record)
    }

    fn adopt(&mut self, record: SessionRecord) -> Result<()> {
        self.record = record;
        self.tidy().map_err(|error| self.failed(error))
    }

    /// Removes what an interrupted call left: heads that are not the head.
    fn tidy(&self) -> io::Result<()> {
        let head = self.head();
        make_folder(head.path())?;
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

    pub fn failed(&self, error: io::Error) -> Error {
        failed(&self.record.id, error)
    }
}

pub(super) const RECORD: &str = "session.json";
pub(super) const LOCK: &str = "lock";
pub(super) const BUSY: &str = "busy";
const STEPS: &str = "steps";
pub(super) const CHECKPOINTS: &str = "checkpoints";
const HEAD: &str = "head-";

fn head_name(number: u64) -> String {
    format!("{HEAD}{number}")
}

pub(super) fn head_path(path: &Path, number: u64) -> PathBuf {
    path.join(head_name(number))
}

fn open_folder(path: &Path) -> io::Result<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Arc::new(rustix::fs::open(path, flags, Mode::empty())?))
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

fn failed(id: &SessionId, error: io::Error) -> Error {
    Error::io(format!("session `{id}`"), error)
}
