//! A backend as unlike a local Linux machine as the traits allow: a service without processes, host
//! paths or a Linux userland. It keeps snapshots itself, and its instances go on without the process
//! that created them. It proves that such a backend needs no special case in the lifecycle.

mod files;
mod instance;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_audit::Egress;
use brig_egress::{RuleSet, Rules};
use brig_reason::ReasonCode;
use brig_sandbox::backend::{BackendKind, Lifetime, Snapshot, SnapshotState, StateKind};
use brig_sandbox::{
    Backend, BackendId, Capabilities, Control, ControlState, Controls, Error, InitialState,
    Instance, Plan, Request, Result, SessionConfig, Strength, Unavailable,
};

use self::files::Files;
use self::instance::{Machine, RemoteInstance};
use crate::program::Step;

pub static KIND: BackendKind = BackendKind {
    name: "remote",
    title: "Remote",
    options: &[],
    settings: &[],
    mounts_scripts: false,
};

/// What it does not do. All other controls are claimed.
const ABSENT: &[Control] = &[
    Control::CommandDeny,
    Control::CommandAllow,
    Control::CommandArguments,
    Control::CommandRecord,
    Control::Tools,
    Control::Mounts,
    Control::Syscalls,
    Control::Signals,
    Control::LinuxUserland,
];

/// The service. It outlives every backend and every `Sandbox` that uses it.
#[derive(Clone, Debug, Default)]
pub struct Service(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    created: u64,
    instances: HashMap<String, Arc<Machine>>,
    snapshots: HashMap<String, Files>,
    unreachable: bool,
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many instances there are that did not end.
    pub fn instances(&self) -> usize {
        let mut state = self.state();
        state.instances.retain(|_, machine| machine.is_alive());
        state.instances.len()
    }

    pub fn snapshots(&self) -> usize {
        self.state().snapshots.len()
    }

    /// The rules that are in force in each instance with a network.
    pub fn rules(&self) -> Vec<Arc<RuleSet>> {
        let state = self.state();
        let machines = state.instances.values();
        machines.filter_map(|machine| machine.rules()).collect()
    }

    /// Changes every snapshot, as an attacker or a fault would.
    pub fn damage_snapshots(&self) {
        for files in self.state().snapshots.values_mut() {
            let _ = files.write("damage", 0o644, b"damage".to_vec(), u64::MAX);
        }
    }

    /// Ends every instance, as a service does when it is restarted.
    pub fn end_instances(&self) {
        let all: Vec<_> = self.state().instances.drain().collect();
        for (_, machine) in all {
            machine.end();
        }
    }

    /// Lets all requests fail from now on, or no longer.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.state().unreachable = unreachable;
    }

    fn reach(&self) -> Result<MutexGuard<'_, State>, Unavailable> {
        let state = self.state();
        if state.unreachable {
            return Err(Unavailable {
                code: ReasonCode::EngineUnreachable,
                reason: "the service does not answer".into(),
                fix: Some("start the service".into()),
            });
        }
        Ok(state)
    }

    fn save(&self, files: &Files) -> Snapshot {
        let mut state = self.state();
        state.created += 1;
        let handle = format!("snapshot-{}", state.created);
        state.snapshots.insert(handle.clone(), files.clone());
        Snapshot {
            handle,
            digest: files.digest(),
            bytes: files.bytes(),
        }
    }
}

/// A backend for a [`Service`].
#[derive(Debug)]
pub struct RemoteFake {
    id: BackendId,
    service: Service,
    lease: Duration,
}

impl RemoteFake {
    pub fn new(service: Service) -> Self {
        Self {
            id: BackendId::of(KIND.name),
            service,
            lease: Duration::from_secs(600),
        }
    }

    /// Under a name of the user's configuration.
    #[must_use]
    pub fn named(self, id: BackendId) -> Self {
        Self { id, ..self }
    }

    /// Whose instances end this long after they were last used.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// How this backend runs the programs of the suite.
    pub fn program(steps: &[Step]) -> Request {
        let steps = serde_json::to_string(steps).unwrap_or_default();
        Request::command(["steps", &steps])
    }

    fn unreachable(&self, cause: Unavailable) -> Error {
        Error::Unavailable {
            backend: self.id.clone(),
            cause,
        }
    }
}

#[async_trait]
impl Backend for RemoteFake {
    fn id(&self) -> &BackendId {
        &self.id
    }

    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    async fn probe(&self, _config: &SessionConfig) -> Result<Capabilities, Unavailable> {
        drop(self.service.reach()?);
        let state = |control| {
            let absent = ABSENT.contains(&control);
            ControlState {
                control,
                strength: if absent {
                    Strength::Absent
                } else {
                    Strength::Enforced
                },
                by: if absent {
                    "the service has none"
                } else {
                    "the service"
                }
                .into(),
                fix: None,
            }
        };
        let controls = Controls(Control::ALL.into_iter().map(state).collect());
        let mut capabilities = Capabilities::new(controls);
        capabilities.state = StateKind::Snapshots;
        capabilities.lifetime = Lifetime::Lease(self.lease);
        Ok(capabilities)
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        let mut state = self.service.reach().map_err(|c| self.unreachable(c))?;
        let files = match plan.initial() {
            InitialState::Empty => Files::default(),
            InitialState::Snapshot(snapshot) => match state.snapshots.get(&snapshot.handle) {
                Some(files) => files.clone(),
                None => {
                    return Err(Error::Setup {
                        step: format!("restore `{}`", snapshot.handle),
                        problem: "there is no such snapshot".into(),
                    });
                }
            },
            InitialState::Layers(_) | InitialState::Copy(_) => {
                return Err(Error::Setup {
                    step: "bring files in".into(),
                    problem: "there are no host directories here".into(),
                });
            }
        };
        state.created += 1;
        let network = plan.network();
        let machine = Arc::new(Machine::new(
            format!("instance-{}", state.created),
            files,
            plan,
            network.is_on().then(|| Rules::new(network.rules())),
            self.lease,
        ));
        state
            .instances
            .insert(machine.handle().to_owned(), machine.clone());
        Ok(Box::new(RemoteInstance::new(self.service.clone(), machine)))
    }

    async fn join(&self, _plan: &Plan, handle: &str) -> Result<Option<Box<dyn Instance>>> {
        let state = self.service.reach().map_err(|c| self.unreachable(c))?;
        let found = state.instances.get(handle);
        let Some(machine) = found.filter(|machine| machine.is_alive()) else {
            return Ok(None);
        };
        machine.renew();
        let instance = RemoteInstance::new(self.service.clone(), machine.clone());
        Ok(Some(Box::new(instance)))
    }

    async fn end(&self, handle: &str) -> Result<Vec<Egress>> {
        let mut state = self.service.reach().map_err(|c| self.unreachable(c))?;
        if let Some(machine) = state.instances.remove(handle) {
            machine.end();
        }
        Ok(Vec::new())
    }

    async fn check_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotState> {
        let state = self.service.reach().map_err(|c| self.unreachable(c))?;
        Ok(match state.snapshots.get(&snapshot.handle) {
            None => SnapshotState::Missing,
            Some(files) if files.digest() == snapshot.digest => SnapshotState::Intact,
            Some(_) => SnapshotState::Changed,
        })
    }

    async fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let mut state = self.service.reach().map_err(|c| self.unreachable(c))?;
        state.snapshots.remove(&snapshot.handle);
        Ok(())
    }

    async fn sweep(&self) -> Result<usize> {
        let mut state = self.service.state();
        let before = state.instances.len();
        state.instances.retain(|_, machine| machine.is_alive());
        Ok(before - state.instances.len())
    }
}
