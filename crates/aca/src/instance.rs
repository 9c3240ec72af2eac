//! A sandbox as an instance of a session. Dropping it changes nothing in the service.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_audit::Egress;
use brig_egress::{Layer, RuleSet};
use brig_reason::ReasonCode;
use brig_sandbox::backend::{FileEntry, Lease, Permit, Saved, Snapshot};
use brig_sandbox::{Error, Execution, Instance, Limits, NetworkConfig, Outcome, Result};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::api::action;
use crate::client::Failure;
use crate::create::both;
use crate::decisions::Decisions;
use crate::handle::{self, Seen};
use crate::lists::pages;
use crate::policy::EgressPolicy;
use crate::remote::{Done, Remote};
use crate::{files, helper, run, settings};

/// A sandbox, and what it was started with.
#[derive(Debug)]
pub(crate) struct Machine {
    pub remote: Remote,
    pub limits: Limits,
    pub decisions: Decisions,
    network: Mutex<NetworkConfig>,
    /// For one change of the network or one resume at a time.
    changing: tokio::sync::Mutex<()>,
    lease: Duration,
}

impl Machine {
    pub(crate) fn new(
        remote: Remote,
        limits: Limits,
        network: NetworkConfig,
        lease: Duration,
        seen: Seen,
    ) -> Self {
        Self {
            remote,
            limits,
            decisions: Decisions::since(seen),
            network: Mutex::new(network),
            changing: tokio::sync::Mutex::default(),
            lease,
        }
    }

    fn rules(&self) -> NetworkConfig {
        let rules = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }

    /// Does it; and if the sandbox was suspended, wakes it up and does it then.
    pub(crate) async fn do_running<T, F>(&self, step: &str, act: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        if self.remote.is_gone() {
            return Err(Error::InstanceLost(
                "the service does not have it any more".into(),
            ));
        }
        let failure = match act().await {
            Err(failure) if failure.is_not_running() => {
                self.wake().await?;
                match act().await {
                    Err(failure) => failure,
                    Ok(done) => return Ok(done),
                }
            }
            Err(failure) => failure,
            Ok(done) => return Ok(done),
        };
        Err(self.remote.failed(step, &failure))
    }

    /// A command that was refused because the sandbox is suspended was not run.
    pub(crate) async fn helper(&self, arguments: &[&str]) -> Result<Done> {
        let command = helper::command(arguments);
        self.do_running("run a command", || self.remote.execute(command.clone()))
            .await
    }

    pub(crate) async fn wake(&self) -> Result<()> {
        let _one = self.changing.lock().await;
        let policy = EgressPolicy::of(&self.rules())?;
        let resumed = self.remote.resume(&policy).await;
        if let Err(error) = resumed {
            return match ReasonCode::AzurePolicy == error.code() {
                true => Err(self.delete_because(error).await),
                false => Err(error),
            };
        }
        Ok(())
    }

    /// Deletes a sandbox that must not be used again. What it has asked for is recorded before.
    pub(crate) async fn delete_because(&self, error: Error) -> Error {
        match self.decisions.close(&self.remote).await {
            Ok(()) => error,
            Err(left) => both(error, left),
        }
    }
}

/// What the lifecycle holds.
#[derive(Debug)]
pub(crate) struct AcaInstance(pub Arc<Machine>);

#[async_trait]
impl Instance for AcaInstance {
    async fn execute(&self, permit: Permit, execution: Execution) -> Result<Outcome> {
        run::execute(&self.0, permit, execution).await
    }

    async fn put_file(
        &self,
        path: &str,
        mode: u32,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<u64> {
        files::put(&self.0, path, mode, content).await
    }

    async fn get_file(
        &self,
        path: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        files::get(&self.0, path, into).await
    }

    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        files::list(&self.0, path).await
    }

    async fn save(&self, _into: &Path) -> Result<Saved> {
        let bytes = files::used(&self.0).await?;
        let name = format!("brig-{}", uuid::Uuid::new_v4());
        let found = snapshot(&self.0, &name).await?;
        Ok(Saved::Snapshot(described(&found, bytes)?))
    }

    fn lease(&self) -> Option<Lease> {
        Some(Lease {
            handle: handle::text(self.0.remote.id(), &self.0.decisions.seen()),
            expires: jiff::Timestamp::now() + self.0.lease,
        })
    }

    fn is_alive(&self) -> bool {
        !self.0.remote.is_gone()
    }

    async fn network(&self) -> Result<Option<Arc<RuleSet>>> {
        let rules = self.0.rules();
        Ok(rules.is_on().then(|| Arc::new(rules.rules())))
    }

    async fn change_network(&self, layer: Layer) -> Result<()> {
        let machine = &self.0;
        let _one = machine.changing.lock().await;
        let mut rules = machine.rules();
        rules.replace(layer);
        let policy = EgressPolicy::of(&rules)?;
        if let Err(error) = machine.remote.set_policy(&policy).await {
            // Which rules are in force is not known.
            return Err(machine.delete_because(error).await);
        }
        *machine
            .network
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    async fn unattributed(&self) -> Vec<Egress> {
        match self.0.remote.is_deleted() {
            true => Vec::new(),
            false => self.0.decisions.unattributed(&self.0.remote).await,
        }
    }

    async fn destroy(&self) -> Result<()> {
        match self.0.remote.is_deleted() {
            true => Ok(()),
            false => self.0.decisions.close(&self.0.remote).await,
        }
    }
}

/// Sent once; if the answer is lost, it is found by its name.
async fn snapshot(machine: &Machine, name: &str) -> Result<Value> {
    let remote = &machine.remote;
    let call = remote
        .call(Method::POST, action::SNAPSHOT)
        .json(json!({"labels": {"name": name}}))
        .slow();
    let taken = machine
        .do_running("take a snapshot", || async {
            match remote.client.once(&call).await {
                Ok(found) if found["id"].is_string() => Ok(Ok(found)),
                Ok(_) => Ok(Err(Failure::Unreadable("it has no id".into()))),
                Err(failure) if failure.is_uncertain() => Ok(Err(failure)),
                Err(failure) => Err(failure),
            }
        })
        .await?;
    let failure = match taken {
        Ok(found) => return Ok(found),
        Err(failure) => failure,
    };
    let all = pages(&remote.client, "/snapshots", None).await;
    let all = all.map_err(|failure| remote.failed("take a snapshot", &failure))?;
    let own = all.into_iter().find(|one| one["labels"]["name"] == *name);
    own.ok_or_else(|| remote.failed("take a snapshot", &failure))
}

/// The digest is over what the service says of the snapshot: its content can't be read from outside.
pub(crate) fn described(found: &Value, bytes: u64) -> Result<Snapshot> {
    let handle = found["id"].as_str().unwrap_or_default();
    settings::check_segment(handle)
        .map_err(|_| Error::Protocol("a snapshot has no valid id".into()))?;
    Ok(Snapshot {
        handle: handle.to_owned(),
        digest: digest(found),
        bytes,
    })
}

pub(crate) fn digest(found: &Value) -> String {
    let mut hash = Sha256::new();
    for part in [
        &found["id"],
        &found["sandboxId"],
        &found["createdAtUtc"],
        &found["labels"]["name"],
    ] {
        let text = part.to_string();
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
