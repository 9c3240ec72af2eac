//! An instance of the fake service, and the handle of a process to it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_egress::{Layer, RuleSet, Rules};
use brig_sandbox::backend::{FileEntry, FileKind, Lease, Permit, Saved};
use brig_sandbox::{Error, Execution, Instance, Limits, Outcome, Plan, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use super::Service;
use super::files::{Files, Node, Problem};
use super::run;

/// What runs in the service.
#[derive(Debug)]
pub(super) struct Machine {
    handle: String,
    files: Mutex<Files>,
    pub env: Vec<(String, String)>,
    pub limits: Limits,
    rules: Option<Rules>,
    lease: Duration,
    expires: Mutex<jiff::Timestamp>,
    ended: AtomicBool,
    pub changed: Notify,
}

impl Machine {
    pub(super) fn new(
        handle: String,
        files: Files,
        plan: &Plan,
        rules: Option<Rules>,
        lease: Duration,
    ) -> Self {
        Self {
            handle,
            files: Mutex::new(files),
            env: plan.env().to_vec(),
            limits: plan.limits().clone(),
            rules,
            lease,
            expires: Mutex::new(jiff::Timestamp::now() + lease),
            ended: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(super) fn handle(&self) -> &str {
        &self.handle
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rules(&self) -> Option<Arc<RuleSet>> {
        self.rules.as_ref().map(Rules::current)
    }

    fn expires(&self) -> MutexGuard<'_, jiff::Timestamp> {
        self.expires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn renew(&self) {
        *self.expires() = jiff::Timestamp::now() + self.lease;
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.ended.load(Ordering::SeqCst) && jiff::Timestamp::now() < *self.expires()
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until it was ended.
    pub(super) async fn until_end(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            changed.await;
        }
    }
}

/// Dropping it changes nothing in the service.
#[derive(Debug)]
pub(super) struct RemoteInstance {
    service: Service,
    machine: Arc<Machine>,
}

impl RemoteInstance {
    pub(super) fn new(service: Service, machine: Arc<Machine>) -> Self {
        Self { service, machine }
    }

    /// Every request renews the lease.
    fn reach(&self) -> Result<&Machine> {
        if !self.machine.is_alive() {
            return Err(Error::InstanceLost("the service ended it".into()));
        }
        self.machine.renew();
        Ok(&self.machine)
    }
}

fn refused(path: &str) -> impl Fn(Problem) -> Error {
    move |problem| Error::File {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

#[async_trait]
impl Instance for RemoteInstance {
    async fn execute(&self, _permit: Permit, execution: Execution) -> Result<Outcome> {
        run::execute(self.reach()?, execution).await
    }

    async fn put_file(
        &self,
        path: &str,
        mode: u32,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<u64> {
        let machine = self.reach()?;
        let limit = machine.limits.disk_bytes.value;
        let mut bytes = Vec::new();
        let mut content = content.take(limit + 1);
        content
            .read_to_end(&mut bytes)
            .await
            .map_err(|error| Error::io("the content of a file", error))?;
        let size = bytes.len() as u64;
        let mut files = machine.files();
        if let Some((parent, _)) = path.rsplit_once('/') {
            files.make_directory(parent).map_err(refused(path))?;
        }
        files
            .write(path, mode, bytes, limit)
            .map_err(refused(path))?;
        Ok(size)
    }

    async fn get_file(
        &self,
        path: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let content = self.reach()?.files().read(path).map_err(refused(path))?;
        into.write_all(&content)
            .await
            .map_err(|error| Error::io("the content of a file", error))?;
        Ok(content.len() as u64)
    }

    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        let list = self.reach()?.files().list(path).map_err(refused(path))?;
        let entry = |(name, node): (String, Node)| {
            let (kind, size, mode) = match &node {
                Node::Directory => (FileKind::Directory, 0, 0o755),
                Node::File { mode, content } => (FileKind::File, content.len() as u64, *mode),
            };
            FileEntry::new(name.into_bytes(), kind, size, mode)
        };
        Ok(list.into_iter().map(entry).collect())
    }

    async fn save(&self, _into: &Path) -> Result<Saved> {
        let files = self.reach()?.files().clone();
        Ok(Saved::Snapshot(self.service.save(&files)))
    }

    fn lease(&self) -> Option<Lease> {
        Some(Lease {
            handle: self.machine.handle.clone(),
            expires: *self.machine.expires(),
        })
    }

    fn is_alive(&self) -> bool {
        self.machine.is_alive()
    }

    async fn network(&self) -> Result<Option<Arc<RuleSet>>> {
        Ok(self.reach()?.rules())
    }

    async fn change_network(&self, layer: Layer) -> Result<()> {
        if let Some(rules) = &self.reach()?.rules {
            rules.change(|layers| {
                layers.retain(|other| other.kind != layer.kind);
                layers.push(layer);
            });
        }
        Ok(())
    }

    async fn destroy(&self) -> Result<()> {
        self.machine.end();
        self.service.state().instances.remove(&self.machine.handle);
        Ok(())
    }
}
