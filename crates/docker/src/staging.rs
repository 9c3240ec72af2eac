//! Preparing something in a container that is never started. An engine has one container of a name, so each
//! thing is prepared once at a time, whoever does it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};

use crate::derived::GUEST;
use crate::engine::Engine;
use crate::owner::{ContainerOwner, OwnerState};

/// On the container that something is prepared in.
const TOKEN: &str = "brig.prepare";

/// How long the preparation by an owner that can't be checked from here is waited for.
const OTHERS: Duration = Duration::from_secs(120);

/// When the removal of a container is tried again.
const LATER: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// How often it is looked whether another preparation has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// What is prepared.
#[async_trait]
pub(crate) trait Preparation: Send + Sync + 'static {
    /// What the container is made of: an image, and what is mounted.
    fn body(&self) -> ContainerCreateBody;

    /// Does it, unless another preparation that has just ended did.
    async fn make(&self, engine: &Engine, container: &str) -> Result<()>;
}

/// One attempt to prepare something.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    engine: Engine,
    /// The name of the container.
    name: String,
    /// By which this preparation recognises its container.
    token: String,
}

impl Staging {
    pub(crate) fn new(engine: &Engine, name: &str) -> Self {
        Self {
            engine: engine.clone(),
            name: format!("brig-prepare-{name}"),
            token: uuid::Uuid::new_v4().simple().to_string(),
        }
    }

    /// Prepares it. `false` if another preparation does that now.
    pub(crate) async fn prepare(&self, what: Arc<dyn Preparation>) -> Result<bool> {
        let staging = self.clone();
        // In a task of its own: who waits for it may be cancelled, and nothing may be left then.
        let prepared = tokio::spawn(async move { staging.run(&*what).await });
        prepared.await.map_err(|error| Error::Engine {
            code: ReasonCode::EngineFailed,
            step: "prepare the image".into(),
            problem: error.to_string(),
            hint: None,
        })?
    }

    async fn run(&self, what: &dyn Preparation) -> Result<bool> {
        match self.reserve(what).await {
            Ok(true) => {
                let made = what.make(&self.engine, &self.name).await;
                // At once: this process may end now.
                self.discard().await;
                made.map(|()| true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                // The engine may have created it nevertheless, or do so later.
                self.discard().await;
                Err(error)
            }
        }
    }

    /// Creates the container. `false` if another preparation has it.
    async fn reserve(&self, what: &dyn Preparation) -> Result<bool> {
        let mut labels = ContainerOwner::of_process().labels();
        labels.insert(TOKEN.into(), self.token.clone());
        let body = what.body();
        let body = ContainerCreateBody {
            // Never run, but required if the image has no command.
            entrypoint: Some(vec![GUEST.into()]),
            cmd: Some(Vec::new()),
            labels: Some(labels),
            network_disabled: Some(true),
            // Podman does not read the line above.
            host_config: Some(HostConfig {
                network_mode: Some("none".into()),
                ..body.host_config.unwrap_or_default()
            }),
            ..body
        };
        let options = CreateContainerOptionsBuilder::new()
            .name(&self.name)
            .build();
        let create = self.engine.docker.create_container(Some(options), body);
        let created = self
            .engine
            .unless_taken("prepare the image", create)
            .await?;
        Ok(created.is_some())
    }

    /// Removes the container of this preparation, now and, if that is not certain to have worked, later.
    async fn discard(&self) {
        if !matches!(self.remove().await, Ok(true)) {
            let staging = self.clone();
            tokio::spawn(async move {
                for pause in LATER {
                    tokio::time::sleep(pause).await;
                    if matches!(staging.remove().await, Ok(true)) {
                        return;
                    }
                }
            });
        }
    }

    /// Removes the container if it has this token. Returns whether it was there.
    async fn remove(&self) -> Result<bool> {
        match self.find().await? {
            Some((id, labels)) if labels.get(TOKEN) == Some(&self.token) => {
                self.engine.remove(&id).await.map(|_| true)
            }
            _ => Ok(false),
        }
    }

    /// The id and the labels of the container.
    async fn find(&self) -> Result<Option<(String, HashMap<String, String>)>> {
        let inspect = self.engine.docker.inspect_container(&self.name, None);
        let found = self.engine.find("inspect a container", inspect).await?;
        Ok(found.map(|found| {
            let labels = found.config.and_then(|config| config.labels);
            (found.id.unwrap_or_default(), labels.unwrap_or_default())
        }))
    }

    /// Waits a little for another preparation, or ends it if nobody is left to finish it.
    pub(crate) async fn wait(&self, waited: Duration) -> Result<()> {
        let Some((id, labels)) = self.find().await? else {
            return Ok(());
        };
        let owner = ContainerOwner::from_labels(&labels);
        let state = owner.map(|owner| owner.state(&ContainerOwner::of_process()));
        let abandoned = match state {
            Some(OwnerState::Dead | OwnerState::EarlierBoot) => true,
            Some(OwnerState::Alive | OwnerState::Unknown) | None => waited > OTHERS,
        };
        if abandoned {
            self.engine.remove(&id).await?;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}
