//! The instance of a session, and the folder it is kept in. Either may come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::inner::{Inner, Phase};
use super::{network, standing};
use crate::config::MIB;
use crate::shared::{Shared, lock};
use crate::store::{Head, Home, Opening, SessionRecord, Store, blocking};
use crate::{AgentId, Error, Instance, Plan, Result, SessionId};

/// How long to wait for another process that has the session open.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// What a new instance may write however full its session is, so that files can be removed.
const LEAST_DISK: u64 = MIB;

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
    lost: Arc<AtomicBool>,
}

impl Live {
    pub fn give_up(&self) {
        self.lost.store(true, Ordering::Release);
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || !self.instance.is_alive()
    }
}

impl Inner {
    /// The instance, started if there is none.
    pub async fn live(&self, shared: &Shared) -> Result<Live> {
        let mut slot = self.slot.lock().await;
        self.live_in(&mut slot, shared).await
    }

    pub async fn live_in(&self, slot: &mut Slot, shared: &Shared) -> Result<Live> {
        if lock(&self.state).doomed() {
            return Err(self.gone());
        }
        if self.durable {
            self.home_in(slot, shared).await?;
        }
        if let Some(live) = slot.live.as_ref().filter(|live| !live.is_lost()) {
            return Ok(live.clone());
        }
        self.bury(slot).await?;
        if lock(&self.state).files_lost {
            let problem = "its files went with it; restore a saved state or destroy the session";
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
        // Kept also if the session is doomed: whoever destroys it waits for this slot.
        slot.live = Some(live.clone());
        entered?;
        Ok(live)
    }

    /// Frees what is left of an instance that was lost.
    async fn bury(&self, slot: &mut Slot) -> Result<()> {
        let Some(lost) = slot.live.take() else {
            return Ok(());
        };
        if !self.durable && self.config.workspace.is_none() {
            lock(&self.state).files_lost = true;
        }
        let ended = lost.instance.destroy().await;
        self.enter(Phase::Failed).and(ended)
    }

    async fn start_instance(&self, slot: &mut Slot, shared: &Shared) -> Result<Live> {
        let mut config = self.config.clone();
        let mut layers = Vec::new();
        let mut head = None;
        let copies = shared.backend.copies_layers();
        match &slot.home {
            Some(home) if copies && !home.is_flat() => with_home(slot, Home::flatten).await?,
            Some(home) if !copies && !home.is_settled() => with_home(slot, Home::settle).await?,
            _ => {}
        }
        if let Some(home) = &slot.home {
            let disk = &mut config.limits.disk_bytes.value;
            if copies {
                // The files lie on the new disk themselves; those that are there must fit.
                *disk = home.store.head_bytes(&home.record).max(*disk);
                layers.extend(home.filled_head()?);
            } else {
                *disk = disk.saturating_sub(home.record.bytes()).max(LEAST_DISK);
                layers = home.layer_paths();
            }
            head = self.keeps_files().then(|| home.head());
            // Changes of one image make no sense in another that has got its name.
            config.image = home.record.base.clone().or(config.image);
        }
        let store = shared.place.durable();
        let file = store.map(|store| store.network_file(&self.owner.agent, &self.owner.session));
        config.network = self.network_now(shared, file.as_ref())?;
        let plan = shared.plan(&config, layers)?;
        let instance: Arc<dyn Instance> = shared.backend.create(&plan).await?.into();
        if let Some(file) = file.filter(|_| instance.network().is_some()) {
            network::follow(&instance, file);
        }
        if let Some(home) = &mut slot.home
            && let Err(error) = begin(home, &instance)
        {
            instance.destroy().await?;
            return Err(error);
        }
        let plan = Arc::new(plan);
        lock(&self.state).plan = plan.clone();
        Ok(Live {
            instance,
            plan,
            head,
            lost: Arc::default(),
        })
    }

    /// The folder of the session, opened if it is not. A durable one may have been destroyed by
    /// another process meanwhile.
    pub async fn home_in<'a>(&self, slot: &'a mut Slot, shared: &Shared) -> Result<&'a mut Home> {
        if slot.home.as_ref().is_some_and(|home| !home.in_place()) {
            self.vanished(slot, shared).await;
            return Err(self.gone());
        }
        if slot.home.is_none() {
            let store = shared.place.store()?.clone();
            let home = if self.durable {
                self.wait_for_home(&store).await?
            } else {
                let record = self.new_record(shared.backend.name());
                blocking(move || match store.try_open(&record.agent, &record.id)? {
                    Opening::Open(home) => Ok(home),
                    Opening::Missing | Opening::Busy { .. } => store.create(record).map(Box::new),
                })
                .await?
            };
            lock(&self.state).busy.attach(home.busy_file()?);
            slot.home = Some(home);
        }
        slot.home.as_deref_mut().ok_or_else(|| self.gone())
    }

    pub fn new_record(&self, backend: &str) -> SessionRecord {
        SessionRecord {
            version: SessionRecord::VERSION,
            agent: self.owner.agent.clone(),
            id: self.owner.session.clone(),
            created: self.created,
            backend: backend.into(),
            config: self.config.clone(),
            layers: Vec::new(),
            head: 0,
            base: None,
        }
    }

    async fn wait_for_home(&self, store: &Store) -> Result<Box<Home>> {
        wait_for_home(store, &self.owner.agent, &self.owner.session, || false)
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

/// Notes in the folder what lives there now.
fn begin(home: &mut Home, instance: &Arc<dyn Instance>) -> Result<()> {
    standing::follow(instance, &home.path)
        .map_err(|error| Error::io("the folder of the session", error))?;
    if let Some(base) = instance.base() {
        home.set_base(base)?;
    }
    home.started(instance.process_id())
}

/// Waits until a session is free. Nothing if `enough` says so first.
pub(super) async fn wait_for_home(
    store: &Store,
    agent: &AgentId,
    id: &SessionId,
    enough: impl Fn() -> bool,
) -> Result<Option<Box<Home>>> {
    let until = Instant::now() + PATIENCE;
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
        if Instant::now() >= until {
            let problem = match pid {
                Some(pid) => format!("process {pid} has it open"),
                None => "another process has it open".into(),
            };
            return Err(Error::SessionBusy {
                session: id.to_string(),
                problem,
            });
        }
        sleep(POLL).await;
    }
}

/// Does something slow with the folder. If the caller stops waiting meanwhile, the folder is
/// closed, and opened anew by the next who needs it.
pub(super) async fn with_home<T: Send + 'static>(
    slot: &mut Slot,
    work: impl FnOnce(&mut Home) -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(mut home) = slot.home.take() else {
        return Err(Error::InstanceLost(
            "the folder of the session is not open".into(),
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
