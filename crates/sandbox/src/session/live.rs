//! The instance of a session, and the directory it is kept in. Either may come and go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::inner::{Inner, Phase};
use super::network::{self, NetworkUpdates};
use super::removal;
use crate::backend::{Lifetime, Options, StateKind};
use crate::config::MIB;
use crate::shared::{Shared, lock};
use crate::store::{Head, Home, NetworkFile, Opening, SessionRecord, Store, blocking};
use crate::wait::Wait;
use crate::{
    AgentId, BackendId, Capabilities, Error, InitialState, Instance, Plan, Result, SessionConfig,
    SessionId,
};

/// How long to wait for another process that has the session open.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// What a new instance may write even if its session is full, so that files can be removed.
const LEAST_DISK: u64 = MIB;
/// How far beyond the limit a session may get by that.
const MOST_BEYOND: u64 = 32 * MIB;

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub live: Option<Live>,
    pub home: Option<Box<Home>>,
}

/// An instance and what it was started with.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub instance: Arc<dyn Instance>,
    pub plan: Arc<Plan>,
    /// Where its files are mirrored to after every execution.
    pub head: Option<Head>,
    pub network: NetworkUpdates,
    lost: Arc<AtomicBool>,
}

impl Live {
    pub(crate) fn new(instance: Arc<dyn Instance>, plan: Arc<Plan>, head: Option<Head>) -> Self {
        Self {
            instance,
            plan,
            head,
            network: NetworkUpdates::default(),
            lost: Arc::default(),
        }
    }

    /// It must not be used again.
    pub(crate) fn mark_lost(&self) {
        self.lost.store(true, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || !self.instance.is_alive()
    }
}

impl Inner {
    /// The instance, started if there is none.
    pub(crate) async fn live(&self, shared: &Shared) -> Result<Live> {
        let mut slot = self.slot.lock().await;
        self.live_in(&mut slot, shared).await
    }

    pub(crate) async fn live_in(&self, slot: &mut Slot, shared: &Shared) -> Result<Live> {
        if lock(&self.state).is_destroyed() {
            return Err(self.gone());
        }
        if self.durable {
            self.home_in(slot, shared).await?;
        }
        if let Some(live) = slot.live.as_ref().filter(|live| !live.is_lost()) {
            return Ok(live.clone());
        }
        self.remove_lost(slot).await?;
        if lock(&self.state).files_lost {
            let problem = "its files were lost with it; restore a checkpoint or destroy the \
                           session";
            return Err(Error::InstanceLost(problem.into()));
        }
        self.enter(Phase::Provisioning)?;
        let started = self.start_instance(slot, shared).await;
        let phase = if started.is_ok() {
            Phase::Open
        } else {
            Phase::Failed
        };
        let entered = self.enter(phase);
        let live = started?;
        // Kept also if the session is being destroyed: whoever destroys it waits for this slot.
        slot.live = Some(live.clone());
        entered?;
        Ok(live)
    }

    /// Frees what is left of an instance that was lost.
    async fn remove_lost(&self, slot: &mut Slot) -> Result<()> {
        let Some(lost) = slot.live.take() else {
            return Ok(());
        };
        if !self.durable && self.config.workspace.is_none() {
            lock(&self.state).files_lost = true;
        }
        let ended = lost.instance.destroy().await;
        if let Some(home) = &mut slot.home {
            home.set_lease(None)?;
        }
        self.enter(Phase::Failed).and(ended)
    }

    async fn start_instance(&self, slot: &mut Slot, shared: &Shared) -> Result<Live> {
        let mut config = self.config.clone();
        let store = shared.storage.durable();
        let file = store.map(|store| store.network_file(&self.key.agent, &self.key.session));
        config.network = self.network_now(shared, file.as_ref())?;
        if let Some(home) = &slot.home {
            // Changes of one image make no sense in another that has got its name.
            config.options.extend(home.record.pinned.clone());
        }
        let offer = shared.probe(&config).await?;
        let initial = bring_in(slot, offer.state, &mut config).await?;
        let head = slot.home.as_ref().filter(|_| self.keeps_files());
        let head = head.map(|home| home.head());
        let plan = Arc::new(shared.plan_with(&config, &offer, initial)?);
        let (instance, plan) = match join(slot, shared, &plan, &offer).await? {
            Some(instance) => (instance, plan),
            None => shared.create(&config, plan).await?,
        };
        let live = Live::new(instance, plan, head);
        if let Err(error) = begin(slot, &live, file).await {
            live.instance.destroy().await?;
            return Err(error);
        }
        lock(&self.state).plan = live.plan.clone();
        Ok(live)
    }

    /// The directory of the session, opened if it is not. Another process may have destroyed a
    /// durable one meanwhile.
    pub(crate) async fn home_in<'a>(
        &self,
        slot: &'a mut Slot,
        shared: &Shared,
    ) -> Result<&'a mut Home> {
        if slot.home.as_ref().is_some_and(|home| !home.in_place()) {
            self.vanished(slot, shared).await;
            return Err(self.gone());
        }
        if slot.home.is_none() {
            let store = shared.storage.store()?.clone();
            let home = if self.durable {
                self.wait_for_home(&store).await?
            } else {
                let record = self.new_record(shared.backend.id());
                blocking(move || match store.try_open(&record.agent, &record.id)? {
                    Opening::Open(home) => Ok(home),
                    Opening::Missing | Opening::Busy { .. } => {
                        let home = store.create(record)?;
                        home.created()?;
                        Ok(Box::new(home))
                    }
                })
                .await?
            };
            lock(&self.state).busy.attach(home.busy_file()?);
            slot.home = Some(home);
        }
        slot.home.as_deref_mut().ok_or_else(|| self.gone())
    }

    pub(crate) fn new_record(&self, backend: &BackendId) -> SessionRecord {
        let plan = lock(&self.state).plan.clone();
        SessionRecord {
            version: SessionRecord::VERSION,
            agent: self.key.agent.clone(),
            id: self.key.session.clone(),
            created: self.created,
            backend: backend.clone(),
            config: self.config.clone(),
            layers: Vec::new(),
            head: 0,
            pinned: Options::new(),
            snapshots: plan.state_kind == StateKind::Snapshots,
            enforcement: plan.enforcement().to_vec(),
        }
    }

    async fn wait_for_home(&self, store: &Store) -> Result<Box<Home>> {
        wait_for_home(store, &self.key.agent, &self.key.session, || false)
            .await?
            .ok_or_else(|| self.gone())
    }

    /// Another process destroyed the session.
    async fn vanished(&self, slot: &mut Slot, shared: &Shared) {
        if let Some(live) = slot.live.take() {
            let _ = live.instance.destroy().await;
        }
        slot.home = None;
        lock(&self.state).busy.detach();
        self.abandon(shared);
    }
}

fn full(saved: u64, limit: u64) -> io::Error {
    let problem = format!(
        "its files take {} MiB of {} MiB; restore a checkpoint or destroy the session",
        saved / MIB,
        limit / MIB
    );
    io::Error::new(io::ErrorKind::StorageFull, problem)
}

/// Brings the files of the session into the form that the backend takes. Changes the limit of the
/// disk to what an instance may still write.
async fn bring_in(
    slot: &mut Slot,
    kind: StateKind,
    config: &mut SessionConfig,
) -> Result<InitialState> {
    let saved = slot.home.as_ref().map(|home| home.record.snapshots);
    if saved.is_some_and(|saved| saved != (kind == StateKind::Snapshots)) {
        return Err(Error::InvalidConfig {
            what: "backend",
            problem: "the files of the session were saved in another way than it uses now".into(),
        });
    }
    match (&slot.home, kind) {
        (Some(home), StateKind::Copied) if !home.is_flat() => {
            with_home(slot, Home::flatten).await?;
        }
        (Some(home), StateKind::Layered) if !home.is_settled() => {
            with_home(slot, Home::settle).await?;
        }
        _ => {}
    }
    let Some(home) = &slot.home else {
        return Ok(InitialState::Empty);
    };
    let disk = &mut config.limits.disk_bytes.value;
    match kind {
        StateKind::Copied => {
            // The files are on the new disk themselves; those that exist must fit.
            *disk = home.store.head_bytes(&home.record).max(*disk);
            let files = home.filled_head()?;
            Ok(files.map_or(InitialState::Empty, InitialState::Copy))
        }
        StateKind::Snapshots => {
            let snapshot = home.snapshot()?;
            let bytes = snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
            *disk = bytes.max(*disk);
            Ok(snapshot.map_or(InitialState::Empty, InitialState::Snapshot))
        }
        StateKind::Layered => {
            let saved = home.record.bytes();
            if saved > disk.saturating_add(MOST_BEYOND) {
                return Err(home.failed(full(saved, *disk)));
            }
            *disk = disk.saturating_sub(saved).max(LEAST_DISK);
            Ok(InitialState::Layers(home.layer_paths()))
        }
    }
}

/// The instance that another process left, if there is one, with the network rules of now.
async fn join(
    slot: &mut Slot,
    shared: &Shared,
    plan: &Plan,
    offer: &Capabilities,
) -> Result<Option<Arc<dyn Instance>>> {
    let lease = slot.home.as_ref().and_then(|home| home.lease.clone());
    let lease = lease.filter(|lease| lease.expires > Timestamp::now());
    let (Some(lease), Lifetime::Lease(_)) = (lease, offer.lifetime) else {
        return Ok(None);
    };
    let Some(instance) = shared.backend.join(plan, &lease.handle).await? else {
        return Ok(None);
    };
    let instance: Arc<dyn Instance> = instance.into();
    network::update(instance.as_ref(), plan.network()).await?;
    Ok(Some(instance))
}

/// Follows what other processes change, and records in the session's directory which instance it has.
async fn begin(slot: &mut Slot, live: &Live, network: Option<NetworkFile>) -> Result<()> {
    let instance = &live.instance;
    if let Some(file) = network
        && instance.network().await?.is_some()
    {
        live.network.follow(instance, file);
    }
    let Some(home) = &mut slot.home else {
        return Ok(());
    };
    removal::follow(instance, &home.path)
        .map_err(|error| Error::io("the directory of the session", error))?;
    let pinned = instance.pinned();
    if !pinned.is_empty() {
        home.pin(pinned)?;
    }
    home.set_lease(instance.lease())?;
    home.started(instance.process_id())
}

/// Waits until no other process has the session open. `None` if `enough` is true first.
pub(super) async fn wait_for_home(
    store: &Store,
    agent: &AgentId,
    id: &SessionId,
    enough: impl Fn() -> bool,
) -> Result<Option<Box<Home>>> {
    let mut wait = Wait::new();
    loop {
        let pid = match store.try_open(agent, id)? {
            Opening::Open(home) => return Ok(Some(home)),
            Opening::Missing => {
                return Err(Error::NoSession {
                    agent: agent.to_string(),
                    session: id.to_string(),
                });
            }
            Opening::Busy { pid } => pid,
        };
        if enough() {
            return Ok(None);
        }
        let whom = || pid.map_or("another process".into(), |pid| format!("process {pid}"));
        if wait.is_over(PATIENCE, || {
            format!("{}, which has session `{id}` open", whom())
        }) {
            return Err(Error::SessionBusy {
                session: id.to_string(),
                problem: format!("{} has it open", whom()),
            });
        }
        sleep(POLL).await;
    }
}

/// Does something slow with the directory. If the caller stops waiting meanwhile, the directory is
/// closed, and the next call opens it again.
pub(super) async fn with_home<T: Send + 'static>(
    slot: &mut Slot,
    work: impl FnOnce(&mut Home) -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(mut home) = slot.home.take() else {
        return Err(Error::InstanceLost(
            "the directory of the session is not open".into(),
        ));
    };
    let (home, result) = blocking(move || {
        let result = work(&mut home);
        Ok((home, result))
    })
    .await?;
    slot.home = Some(home);
    result
}
