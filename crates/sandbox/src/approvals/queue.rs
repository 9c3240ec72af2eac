//! Requests as files in the state directory, so that another process of the same user can answer them.
//!
//! ```text
//! approvals/<id>.json     the request, and the process that waits
//! approvals/<id>.answer   the answer
//! ```
//!
//! Whoever creates the answer first has decided: an operator, or the process that stops waiting. No mount shows
//! the state directory, so code in a sandbox reaches neither.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ApprovalAnswer, ApprovalRequest, Approver};
use crate::store::{Process, make_directory};

/// How often an answer is looked for.
const POLL: Duration = Duration::from_millis(100);
/// Before the end of the wait, so that it is the queue that decides whether an answer came in time.
const MARGIN: Duration = Duration::from_millis(250);
/// How long who waited may take from the removal of the request to that of its answer.
const TAKING: Duration = Duration::from_secs(1);
/// An answer without a request is kept for so long.
const STALE: Duration = Duration::from_secs(60);
/// Requests of one process that wait at one time.
pub(super) const MOST: usize = 64;
/// A request has at most 64 KiB of text, which JSON may write six times as long.
const LARGEST: u64 = 4 << 20;

/// The requests that wait for an answer, in a directory.
#[derive(Debug)]
pub struct ApprovalQueue {
    directory: PathBuf,
    waiting: AtomicUsize,
}

/// Why a request can't be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// There is no such request, or nobody waits for its answer any more.
    #[error("no request `{0}` waits for an answer")]
    Unknown(String),
    /// Somebody was faster, or the time was up.
    #[error("request `{0}` was answered already, or its time is up")]
    Answered(String),
    /// The directory can't be used.
    #[error("cannot use `{}`: {error}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
}

/// A request, and who waits.
#[derive(Serialize, Deserialize)]
pub(super) struct Waiting {
    request: ApprovalRequest,
    pub(super) owner: Process,
}

/// An answer, and what it is for.
#[derive(Serialize, Deserialize)]
pub(super) struct Given {
    request: String,
    digest: String,
    /// `None` if nobody waits any more.
    answer: Option<ApprovalAnswer>,
    at: Timestamp,
}

impl ApprovalQueue {
    /// The queue in a state directory, such as [`crate::state_dir`].
    pub fn open(state: &Path) -> Result<Self, QueueError> {
        let directory = state.join("approvals");
        let check = || -> io::Result<()> {
            make_directory(&directory)?;
            let found = fs::symlink_metadata(&directory)?;
            let own = found.uid() == rustix::process::geteuid().as_raw();
            if !found.is_dir() || !own || found.mode() & 0o077 != 0 {
                return Err(io::Error::other("it is not a directory of this user alone"));
            }
            Ok(())
        };
        match check() {
            Ok(()) => Ok(Self {
                directory,
                waiting: AtomicUsize::new(0),
            }),
            Err(error) => Err(QueueError::Io { directory, error }),
        }
    }

    /// What waits for an answer, the oldest first. Removes what ended processes left.
    pub fn list(&self) -> Result<Vec<ApprovalRequest>, QueueError> {
        let mut all: Vec<ApprovalRequest> = Vec::new();
        let entries = fs::read_dir(&self.directory).map_err(|error| self.failed(error))?;
        for entry in entries {
            let name = entry.map_err(|error| self.failed(error))?.file_name();
            let Some((id, kind)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            match (kind, self.waiting(id)) {
                ("json", Some(request)) => all.push(request),
                (_, Some(_)) => {}
                // What a process is about to write belongs to one that lives.
                // Its answer goes when it is stale.
                ("json", None) => drop(fs::remove_file(self.path(id, "json"))),
                ("answer", None) if self.is_stale(id) => self.remove(id),
                (_, None) => {}
            }
        }
        all.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        Ok(all)
    }

    /// One request that waits for an answer.
    pub fn get(&self, id: &str) -> Result<ApprovalRequest, QueueError> {
        let unknown = || QueueError::Unknown(id.escape_debug().to_string());
        if !is_id(id) {
            return Err(unknown());
        }
        self.waiting(id).ok_or_else(unknown)
    }

    /// Answers a request. The answer counts once, and only for what the request shows.
    pub fn answer(
        &self,
        request: &ApprovalRequest,
        answer: ApprovalAnswer,
    ) -> Result<(), QueueError> {
        let id = &request.id;
        if self.get(id)? != *request {
            return Err(QueueError::Unknown(id.clone()));
        }
        let given = Given::new(request, Some(answer));
        if !self.claim(&given).map_err(|error| self.failed(error))? {
            return Err(QueueError::Answered(id.clone()));
        }
        // Who waits removes the request before the answer: if it is there, the answer is in time.
        if self.waiting(id).is_none() && !self.was_taken(id) {
            self.remove(id);
            return Err(QueueError::Unknown(id.clone()));
        }
        Ok(())
    }

    /// Whether who waited has taken the answer along: it is removed right after the request. Nobody removes one that
    /// was too late as soon as that.
    fn was_taken(&self, id: &str) -> bool {
        let until = Instant::now() + TAKING;
        loop {
            if !self.path(id, "answer").exists() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether an answer has no request for so long that nobody is about to take it.
    fn is_stale(&self, id: &str) -> bool {
        let answer = self.path(id, "answer").metadata();
        let age = answer.and_then(|answer| answer.modified()).ok();
        let age = age.and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age > STALE)
    }

    /// A request of a process that lives.
    fn waiting(&self, id: &str) -> Option<ApprovalRequest> {
        let waiting: Waiting = read(&self.path(id, "json"))?;
        let lives = Process::of(waiting.owner.pid) == Some(waiting.owner);
        (lives && waiting.request.id == id).then_some(waiting.request)
    }

    /// Creates the answer. False if there is one.
    pub(super) fn claim(&self, given: &Given) -> io::Result<bool> {
        let written = self.path(&given.request, &uuid::Uuid::new_v4().simple().to_string());
        write(&written, given)?;
        let claimed = fs::hard_link(&written, self.path(&given.request, "answer"));
        fs::remove_file(&written)?;
        match claimed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The answer to exactly this request.
    pub(super) fn answered(&self, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
        let given: Given = read(&self.path(&request.id, "answer"))?;
        let fits = given.request == request.id && given.digest == request.subject.digest;
        fits.then_some(given.answer).flatten()
    }

    fn remove(&self, id: &str) {
        for kind in ["json", "answer"] {
            let _ = fs::remove_file(self.path(id, kind));
        }
    }

    pub(super) fn path(&self, id: &str, kind: &str) -> PathBuf {
        self.directory.join(format!("{id}.{kind}"))
    }

    fn failed(&self, error: io::Error) -> QueueError {
        QueueError::Io {
            directory: self.directory.clone(),
            error,
        }
    }

    pub(super) fn add(&self, request: &ApprovalRequest) -> io::Result<PendingRequest<'_>> {
        let owner = Process::of(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let waiting = Waiting {
            request: request.clone(),
            owner,
        };
        let new = self.path(&request.id, "new");
        write(&new, &waiting)?;
        fs::rename(&new, self.path(&request.id, "json"))?;
        Ok(PendingRequest {
            queue: self,
            request: request.clone(),
        })
    }
}

impl Given {
    pub(super) fn new(request: &ApprovalRequest, answer: Option<ApprovalAnswer>) -> Self {
        Self {
            request: request.id.clone(),
            digest: request.subject.digest.clone(),
            answer,
            at: Timestamp::now(),
        }
    }
}

/// A request of this process. Nobody can answer it after it was dropped.
pub(super) struct PendingRequest<'a> {
    queue: &'a ApprovalQueue,
    request: ApprovalRequest,
}

impl PendingRequest<'_> {
    /// Ends the wait. Returns the answer if there is one.
    pub(super) fn close(&self) -> Option<ApprovalAnswer> {
        match self.queue.claim(&Given::new(&self.request, None)) {
            Ok(true) => None,
            // What can't be read is no approval.
            Ok(false) | Err(_) => self.queue.answered(&self.request),
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.close();
        self.queue.remove(&self.request.id);
    }
}

/// One of the requests that may wait at one time.
struct WaitingSlot<'a>(&'a AtomicUsize);

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Approver for ApprovalQueue {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let slot = WaitingSlot(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST {
            return ApprovalAnswer::deny("brig").because(format!("{MOST} requests wait already"));
        }
        let entry = match self.add(request) {
            Ok(entry) => entry,
            Err(error) => {
                let problem = format!("the request could not be written: {error}");
                return ApprovalAnswer::deny("brig").because(problem);
            }
        };
        let margin = MARGIN.min(request.timeout / 4);
        let until = tokio::time::Instant::now() + request.timeout.saturating_sub(margin);
        loop {
            if let Some(answer) = self.answered(request) {
                return answer;
            }
            if tokio::time::Instant::now() >= until {
                if let Some(answer) = entry.close() {
                    return answer;
                }
                // Nobody can answer any more. The end of the wait is recorded as what it is.
                drop(entry);
                drop(slot);
                return std::future::pending().await;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// 32 hexadecimal digits, so that it is no path.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = brig_input::read(path, LARGEST).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// For its owner alone.
pub(super) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&serde_json::to_vec(value)?)
}
