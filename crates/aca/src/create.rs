//! New sandboxes: the request is sent once, what came of it is checked before anything runs, and on an error
//! the sandbox is deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api::action;
use crate::client::{Call, Client, Failure};
use crate::helper;
use crate::lists::{id_of, ids, sandboxes};
use crate::policy::EgressPolicy;
use crate::remote::Remote;
use crate::size::Size;

/// Suspended after so many seconds without a request. While something runs, its state is asked for more often.
const SUSPEND_AFTER: u64 = 300;
/// The name of the label that is different for each creation.
const REQUEST: &str = "brig-request";

/// What a new sandbox is to be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub image: String,
    pub size: &'static Size,
    pub policy: EgressPolicy,
    /// The service deletes it then, if nobody does before.
    pub delete_after: Duration,
}

impl Wanted {
    fn lifecycle(&self) -> Value {
        json!({
            "autoSuspendPolicy": {"enabled": true, "interval": SUSPEND_AFTER, "mode": "Memory"},
            "autoDeletePolicy": {
                "enabled": true,
                "deleteIntervalInSeconds": self.delete_after.as_secs(),
            },
        })
    }

    fn body(&self, label: &str) -> Value {
        let image = match self.image.strip_prefix("id:") {
            Some(id) => json!({ "id": id }),
            None => json!({"name": self.image, "isPublic": true}),
        };
        json!({
            "sourcesRef": {"diskImage": image},
            "resources": self.size.json(),
            "lifecycle": self.lifecycle(),
            "labels": {"brig": "sandbox", REQUEST: label},
            "egressPolicy": self.policy.json(),
        })
    }
}

impl Remote {
    /// Creates a sandbox that is ready to run something. It is sent once; if the answer is lost, the sandbox
    /// is found by its label. On an error it is deleted.
    pub(crate) async fn create(client: &Arc<Client>, wanted: &Wanted) -> Result<Self> {
        let (client, wanted) = (client.clone(), wanted.clone());
        finished(async move {
            let label = uuid::Uuid::new_v4().to_string();
            let method = client.account.api.create.clone();
            let call = Call::new(method, "/sandboxes".into())
                .json(wanted.body(&label))
                .slow();
            let answered = client.once(&call).await.and_then(|value| id_of(&value));
            let id = match answered {
                Ok(id) => id,
                Err(failure) if failure.is_uncertain() => {
                    find_again(&client, &label, &failure).await?
                }
                Err(failure) => return Err(client.error("create a sandbox", &failure)),
            };
            let remote = Self::new(client, id);
            let checked = async {
                let found = remote.until_running().await?;
                remote.check(&found, &wanted)?;
                if found["labels"][REQUEST] != *label {
                    return Err(remote.differs("labels", &found["labels"].to_string()));
                }
                remote.keep_backstop(&found, &wanted).await?;
                remote.prepare().await
            };
            let result = checked.await;
            remote.or_delete(result).await
        })
        .await
    }

    /// Hands it on if it may be used, and deletes it otherwise.
    pub(crate) async fn or_delete(self, result: Result<()>) -> Result<Self> {
        let Err(error) = result else {
            return Ok(self);
        };
        match self.delete().await {
            Ok(()) => Err(error),
            Err(left) => Err(both(error, left)),
        }
    }

    fn check(&self, found: &Value, wanted: &Wanted) -> Result<()> {
        if let Some(difference) = wanted.policy.difference(&found["egressPolicy"]) {
            return Err(self.open(&difference));
        }
        if found["skipEgressProxy"] == Value::Bool(true) {
            return Err(self.open("the egress proxy is off"));
        }
        if !wanted.size.is(&found["resources"]) {
            return Err(self.differs("resources", &found["resources"].to_string()));
        }
        Ok(())
    }

    /// Makes sure that the service deletes the sandbox if nobody else does. Whether it tells what is set is not
    /// certain: silence after it was set again is accepted, another value is not.
    pub(crate) async fn keep_backstop(&self, found: &Value, wanted: &Wanted) -> Result<()> {
        let seconds = wanted.delete_after.as_secs();
        let is_set = |found: &Value| {
            let policy = &found["lifecycle"]["autoDeletePolicy"];
            policy["enabled"] == true && policy["deleteIntervalInSeconds"] == seconds
        };
        if is_set(found) {
            return Ok(());
        }
        let step = "set the automatic deletion";
        let call = self
            .call(Method::POST, action::LIFECYCLE)
            .json(wanted.lifecycle());
        let set = self.client.repeated(&call).await;
        set.map_err(|failure| self.failed(step, &failure))?;
        let found = self
            .look()
            .await
            .map_err(|failure| self.failed(step, &failure))?;
        match is_set(&found) || found["lifecycle"].is_null() {
            true => Ok(()),
            false => Err(self.differs("lifecycle policies", &found["lifecycle"].to_string())),
        }
    }

    /// Brings the script in, and checks what it needs.
    pub(crate) async fn prepare(&self) -> Result<()> {
        let step = "prepare the sandbox";
        self.write(helper::PATH, 0o644, helper::SCRIPT)
            .await
            .map_err(|failure| self.failed(step, &failure))?;
        let done = self.execute(helper::command(&["check"])).await;
        let done = done.map_err(|failure| self.failed(step, &failure))?;
        match done.exit_code {
            0 => Ok(()),
            _ => Err(Error::Setup {
                step: "check the disk image".into(),
                problem: done.problem(),
            }),
        }
    }

    pub(crate) fn differs(&self, what: &str, found: &str) -> Error {
        Error::Setup {
            step: "check the sandbox that the service made".into(),
            problem: format!("its {what} are not as requested: {found}"),
        }
    }
}

/// Goes on even if the caller stops waiting; then the sandbox is deleted.
pub(crate) async fn finished(
    work: impl Future<Output = Result<Remote>> + Send + 'static,
) -> Result<Remote> {
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        if let Err(Ok(unwanted)) = answer.send(work.await) {
            // Nobody waits for the answer; the service deletes what is left later.
            let _ = unwanted.delete().await;
        }
    });
    answered
        .await
        .unwrap_or_else(|_| Err(Error::InstanceLost("its creation ended early".into())))
}

/// A sandbox that could not be deleted matters more than why it was to be.
pub(crate) fn both(error: Error, left: Error) -> Error {
    match left {
        Error::Engine {
            code,
            step,
            problem,
            hint,
        } => Error::Engine {
            code,
            step,
            problem: format!("{problem}; it was to be deleted because: {error}"),
            hint,
        },
        other => other,
    }
}

/// Finds the sandbox of a creation whose answer was lost.
async fn find_again(client: &Arc<Client>, label: &str, failure: &Failure) -> Result<String> {
    let until = Instant::now() + client.timing.lookup;
    loop {
        let found = sandboxes(client, Some((REQUEST, label))).await;
        let found = found.map(|all| {
            let own = all
                .into_iter()
                .filter(|one| one["labels"][REQUEST] == *label);
            ids(&own.collect::<Vec<_>>())
        });
        let problem = match found {
            Ok(found) if found.len() == 1 => return Ok(found.concat()),
            Ok(found) if found.is_empty() => client.unavailable(failure).reason,
            Ok(found) => {
                for id in &found {
                    Remote::new(client.clone(), id.clone()).delete().await?;
                }
                return Err(Error::Engine {
                    code: ReasonCode::AzureFailed,
                    step: "create a sandbox".into(),
                    problem: "one request created several sandboxes; all were deleted".into(),
                    hint: None,
                });
            }
            Err(failure) => client.unavailable(&failure).reason,
        };
        if Instant::now() >= until {
            return Err(Error::Engine {
                code: ReasonCode::AzureLeft,
                step: "create a sandbox".into(),
                problem: format!(
                    "{problem}; no sandbox with the label {REQUEST}={label} was found"
                ),
                hint: Some(
                    "look for that label later; the service deletes such a sandbox by itself"
                        .into(),
                ),
            });
        }
        tokio::time::sleep(client.timing.poll).await;
    }
}
