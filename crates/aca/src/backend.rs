//! The service behind the trait of the lifecycle.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use brig_audit::Egress;
use brig_reason::ReasonCode;
use brig_sandbox::backend::{
    BackendKind, Lifetime, Setting, Snapshot, SnapshotState, StateKind, Unsupported,
};
use brig_sandbox::{
    Backend, BackendId, Capabilities, Error, Finding, InitialState, Instance, Plan, Result,
    SessionConfig, Unavailable,
};
use reqwest::Method;
use tokio::sync::OnceCell;

use crate::client::{Call, Client};
use crate::controls::controls;
use crate::create::Wanted;
use crate::decisions::Decisions;
use crate::handle::{self, Seen};
use crate::instance::{AcaInstance, Machine, digest};
use crate::policy::EgressPolicy;
use crate::remote::Remote;
use crate::settings::{self, IMAGE, KIND, Options};
use crate::{group, size};

/// After its last use, a sandbox of a session is there for this long. No execution takes longer.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Sandboxes of Azure Container Apps.
#[derive(Debug)]
pub struct AcaBackend {
    options: Options,
    client: OnceCell<Arc<Client>>,
    /// That the group can be used is looked up once.
    checked: OnceCell<()>,
}

impl AcaBackend {
    /// Nothing is sent before it is used.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            client: OnceCell::new(),
            checked: OnceCell::new(),
        }
    }

    async fn client(&self) -> Result<&Arc<Client>, Unavailable> {
        let open = || async { Client::new(&self.options).map(Arc::new) };
        self.client.get_or_try_init(open).await
    }

    async fn usable(&self) -> Result<&Arc<Client>, Unavailable> {
        let client = self.client().await?;
        self.checked
            .get_or_try_init(|| group::check(client))
            .await?;
        Ok(client)
    }

    async fn used(&self) -> Result<&Arc<Client>> {
        let client = self.usable().await;
        client.map_err(|cause| settings::unavailable(&self.options.id, cause))
    }

    fn wanted(&self, plan: &Plan) -> Result<Wanted> {
        let fit = size::fit(plan.limits());
        Ok(Wanted {
            image: plan
                .option(IMAGE)
                .unwrap_or(self.options.image())
                .to_owned(),
            size: fit.size,
            policy: EgressPolicy::of(plan.network())?,
            delete_after: LEASE,
        })
    }

    fn instance(&self, remote: Remote, plan: &Plan, seen: Seen) -> Box<dyn Instance> {
        let (limits, network) = (plan.limits().clone(), plan.network().clone());
        let machine = Machine::new(remote, limits, network, LEASE, seen);
        Box::new(AcaInstance(Arc::new(machine)))
    }
}

#[async_trait]
impl Backend for AcaBackend {
    fn id(&self) -> &BackendId {
        &self.options.id
    }

    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    async fn probe(&self, config: &SessionConfig) -> Result<Capabilities, Unavailable> {
        let invalid = |reason: String| Unavailable {
            code: ReasonCode::InputConfig,
            reason,
            fix: None,
        };
        EgressPolicy::of(&config.network)?;
        if let Some(problem) = size::too_much(&config.limits) {
            return Err(invalid(problem));
        }
        self.usable().await?;
        let fit = size::fit(&config.limits);
        let limits = &config.limits;
        let mut notes = Vec::new();
        if limits.cpus.asked || limits.memory_bytes.asked {
            notes.push(format!(
                "the sandbox has {}, the largest size within both limits",
                fit.size.text()
            ));
        }
        let instead = "choose a disk image with --image";
        let unsupported = [Setting::Rootfs, Setting::Python];
        let unsupported = unsupported.map(|setting| Unsupported { setting, instead });
        let mut capabilities = Capabilities::new(controls(limits));
        capabilities.state = StateKind::Snapshots;
        capabilities.lifetime = Lifetime::Lease(LEASE);
        capabilities.unsupported = unsupported.into();
        capabilities.notes = notes;
        Ok(capabilities)
    }

    async fn findings(&self, _state: Option<&Path>) -> Vec<Finding> {
        let finding = |good, detail, fix| Finding {
            what: "sandbox group",
            good,
            detail,
            fix,
        };
        match self.usable().await {
            Ok(client) => {
                let account = &client.account;
                let place = String::from(account);
                vec![finding(
                    true,
                    format!(
                        "{place} at {}, API {}",
                        account.service.url, account.api.version
                    ),
                    None,
                )]
            }
            Err(cause) => vec![finding(false, cause.reason, cause.fix)],
        }
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let client = self.used().await?;
        let wanted = self.wanted(plan)?;
        let remote = match plan.initial() {
            InitialState::Empty => Remote::create(client, &wanted).await?,
            InitialState::Snapshot(snapshot) => {
                Remote::restore(client, &snapshot.handle, &wanted).await?
            }
            InitialState::Layers(_) | InitialState::Copy(_) => {
                return Err(Error::Setup {
                    step: "bring files in".into(),
                    problem: "there are no directories of this machine".into(),
                });
            }
        };
        Ok(self.instance(remote, plan, Seen::default()))
    }

    async fn join(&self, plan: &Plan, handle: &str) -> Result<Option<Box<dyn Instance>>> {
        let client = self.used().await?;
        let (id, seen) = handle::parse(handle)?;
        let remote = Remote::new(client.clone(), id.to_owned());
        match remote.look().await {
            Err(failure) if failure.is_missing() => return Ok(None),
            Err(failure) => return Err(client.error("join a sandbox", &failure)),
            Ok(_) => {}
        }
        let wanted = self.wanted(plan)?;
        let ready = async {
            remote.wake().await?;
            remote.take_over(&wanted).await
        };
        if let Err(error) = ready.await {
            remote.delete().await?;
            return Err(error);
        }
        Ok(Some(self.instance(remote, plan, seen)))
    }

    async fn end(&self, handle: &str) -> Result<Vec<Egress>> {
        let client = self.used().await?;
        let (id, seen) = handle::parse(handle)?;
        let remote = Remote::new(client.clone(), id.to_owned());
        if (remote.look().await).is_err_and(|failure| failure.is_missing()) {
            return Ok(Vec::new());
        }
        let decided = Decisions::since(seen).unattributed(&remote).await;
        remote.delete().await?;
        Ok(decided)
    }

    async fn check_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotState> {
        let client = self.used().await?;
        let call = Call::new(Method::GET, snapshot_path(snapshot)?);
        Ok(match client.repeated(&call).await {
            Err(failure) if failure.is_missing() => SnapshotState::Missing,
            Err(failure) => return Err(client.error("look at a snapshot", &failure)),
            Ok(found) if digest(&found) == snapshot.digest => SnapshotState::Intact,
            Ok(_) => SnapshotState::Changed,
        })
    }

    async fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let client = self.used().await?;
        let call = Call::new(Method::DELETE, snapshot_path(snapshot)?);
        match client.repeated(&call).await {
            Err(failure) if !failure.is_missing() => {
                Err(client.error("delete a snapshot", &failure))
            }
            _ => Ok(()),
        }
    }

    /// Sandboxes belong to sessions, not to processes. What no session has is deleted by the service.
    async fn sweep(&self) -> Result<usize> {
        Ok(0)
    }
}

fn snapshot_path(snapshot: &Snapshot) -> Result<String> {
    settings::check_segment(&snapshot.handle).map_err(|problem| Error::InvalidConfig {
        what: "snapshot id",
        problem,
    })?;
    Ok(format!("/snapshots/{}", snapshot.handle))
}
