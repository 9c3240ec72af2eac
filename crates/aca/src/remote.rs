//! One sandbox of the service: what is asked of it while it exists, and its deletion with a confirmation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::action;
use crate::client::{Call, Client, Failure};
use crate::policy::EgressPolicy;

/// A sandbox that exists, as far as is known.
#[derive(Debug)]
pub(crate) struct Remote {
    pub client: Arc<Client>,
    id: String,
    /// It is not used any more: it does not exist, or somebody wants to delete it.
    gone: AtomicBool,
    /// It does not exist.
    deleted: AtomicBool,
}

impl Remote {
    pub(crate) fn new(client: Arc<Client>, id: String) -> Self {
        Self {
            client,
            id,
            gone: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    fn note_deleted(&self) {
        self.deleted.store(true, Ordering::SeqCst);
        self.gone.store(true, Ordering::SeqCst);
    }

    fn path(&self, action: &str) -> String {
        match action {
            "" => format!("/sandboxes/{}", self.id),
            action => format!("/sandboxes/{}/{action}", self.id),
        }
    }

    pub(crate) fn call(&self, method: Method, action: &str) -> Call {
        Call::new(method, self.path(action))
    }

    /// Replaces the egress policy, and reads it back.
    pub(crate) async fn set_policy(&self, policy: &EgressPolicy) -> Result<()> {
        let step = "set the egress policy";
        let call = self
            .call(Method::POST, action::EGRESS_POLICY)
            .json(policy.json());
        let set = self.client.repeated(&call).await;
        let set = set.map_err(|failure| self.failed(step, &failure))?;
        let warned = &set["validationWarnings"];
        if !warned.is_null() && *warned != json!([]) {
            return Err(self.open(&format!("the service warns: {warned}")));
        }
        let found = self
            .look()
            .await
            .map_err(|failure| self.failed(step, &failure))?;
        match policy.difference(&found["egressPolicy"]) {
            None => Ok(()),
            Some(difference) => Err(self.open(&difference)),
        }
    }

    pub(crate) async fn look(&self) -> Result<Value, Failure> {
        self.client.repeated(&self.call(Method::GET, "")).await
    }

    /// A state that is not known is not ready; one that is not visible yet neither.
    pub(crate) async fn until_running(&self) -> Result<Value> {
        let until = Instant::now() + self.client.timing.settle;
        loop {
            let state = match self.look().await {
                Ok(found) => {
                    let state = found["state"].as_str().unwrap_or_default().to_lowercase();
                    match state.as_str() {
                        "running" => return Ok(found),
                        "failed" | "deleting" => {
                            return Err(Error::Setup {
                                step: "start the sandbox".into(),
                                problem: format!("its state is {state}"),
                            });
                        }
                        _ => state,
                    }
                }
                Err(failure) if failure.is_missing() => "not visible".into(),
                Err(failure) => return Err(self.failed("start the sandbox", &failure)),
            };
            if Instant::now() >= until {
                return Err(Error::Setup {
                    step: "start the sandbox".into(),
                    problem: format!("its state is {state} after a long time"),
                });
            }
            tokio::time::sleep(self.client.timing.poll).await;
        }
    }

    /// Wakes a suspended sandbox up.
    pub(crate) async fn wake(&self) -> Result<()> {
        let step = "resume the sandbox";
        let found = self
            .look()
            .await
            .map_err(|failure| self.failed(step, &failure))?;
        let state = found["state"].as_str().unwrap_or_default().to_lowercase();
        if !matches!(state.as_str(), "stopped" | "suspended" | "idle") {
            return Ok(());
        }
        // An empty body was seen to hang.
        let call = self
            .call(Method::POST, action::RESUME)
            .json(json!({}))
            .slow();
        match self.client.once(&call).await {
            // The state tells whether it was done.
            Err(failure) if !failure.is_uncertain() && !failure.is_not_running() => {
                Err(self.failed(step, &failure))
            }
            _ => Ok(()),
        }
    }

    /// Wakes it up and waits. Its policy must be what it was; otherwise it has to be deleted.
    pub(crate) async fn resume(&self, policy: &EgressPolicy) -> Result<()> {
        self.wake().await?;
        let found = self.until_running().await?;
        match policy.difference(&found["egressPolicy"]) {
            None => Ok(()),
            Some(difference) => Err(self.open(&difference)),
        }
    }

    /// Runs a command once. Whatever it starts is not waited for.
    pub(crate) async fn execute(&self, command: String) -> Result<Done, Failure> {
        let call = self
            .call(Method::POST, action::EXECUTE)
            .json(json!({ "command": command }))
            .slow();
        let value = self.noted(self.client.once(&call).await)?;
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let exit_code = value["exitCode"].as_i64();
        Ok(Done {
            exit_code: exit_code.ok_or_else(|| Failure::Unreadable("no exit code".into()))?,
            stdout: text("stdout"),
            stderr: text("stderr"),
        })
    }

    pub(crate) async fn write(
        &self,
        path: &str,
        mode: u32,
        content: impl Into<bytes::Bytes>,
    ) -> Result<(), Failure> {
        let method = self.client.account.api.write_file.clone();
        let call = self
            .call(method, action::FILES)
            .query("path", path)
            .query("createDirs", "true")
            .query("mode", mode.to_string())
            .bytes(content);
        self.noted(self.client.repeated(&call).await).map(drop)
    }

    /// The first bytes of a file.
    pub(crate) async fn read(&self, path: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let call = self
            .call(Method::GET, action::FILES)
            .query("path", path)
            .slow();
        self.noted(self.client.download(&call, most).await)
    }

    /// Removes a file or a directory of ours. What stays is in the way of nobody.
    pub(crate) async fn remove(&self, path: &str) {
        let call = self
            .call(Method::DELETE, action::FILES)
            .query("path", path)
            .query("recursive", "true");
        let _ = self.client.once(&call).await;
    }

    fn noted<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Refused {
            status: 404, title, ..
        }) = &result
            && title == "SandboxNotFound"
        {
            self.note_deleted();
        }
        result
    }

    pub(crate) fn failed(&self, step: &str, failure: &Failure) -> Error {
        match self.is_gone() {
            true => Error::InstanceLost("the service does not have it any more".into()),
            false => self.client.error(step, failure),
        }
    }

    /// Deletes it, and waits until it is gone. One that is gone already is no error.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.gone.store(true, Ordering::SeqCst);
        self.delete_until_gone().await?;
        self.note_deleted();
        Ok(())
    }

    async fn delete_until_gone(&self) -> Result<()> {
        let until = Instant::now() + self.client.timing.settle;
        let problem = loop {
            let deleted = self.client.repeated(&self.call(Method::DELETE, "")).await;
            let problem = match deleted {
                Err(failure) if failure.is_missing() => return Ok(()),
                Err(failure) => failure,
                Ok(_) => match self.look().await {
                    Err(failure) if failure.is_missing() => return Ok(()),
                    Err(failure) => failure,
                    Ok(_) => Failure::Unreadable("it still exists".into()),
                },
            };
            if Instant::now() >= until {
                break problem;
            }
            tokio::time::sleep(self.client.timing.poll).await;
        };
        Err(self.left(&problem))
    }

    /// What could not be deleted is named, so that somebody can.
    fn left(&self, failure: &Failure) -> Error {
        let account = &self.client.account;
        Error::Engine {
            code: ReasonCode::AzureLeft,
            step: format!("delete the sandbox {}", self.id),
            problem: self.client.unavailable(failure).reason,
            hint: Some(format!(
                "az rest --method delete --resource {} --url {}",
                account.service.scope.trim_end_matches("/.default"),
                format_args!(
                    "\"{}{}{}?api-version={}\"",
                    account.service.url.as_str().trim_end_matches('/'),
                    account.group_path,
                    self.path(""),
                    account.api.version
                ),
            )),
        }
    }

    pub(crate) fn open(&self, difference: &str) -> Error {
        Error::Engine {
            code: ReasonCode::AzurePolicy,
            step: "read the egress policy back".into(),
            problem: format!("it is not what was sent: {difference}"),
            hint: None,
        }
    }
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Done {
    pub exit_code: i64,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// The last line of what it wrote.
    pub(crate) fn problem(&self) -> String {
        let text = [&self.stderr, &self.stdout]
            .into_iter()
            .find(|text| !text.trim().is_empty());
        let line = text.and_then(|text| text.trim().lines().last());
        let line: String = line
            .unwrap_or("no reason was given")
            .chars()
            .take(200)
            .collect();
        format!("{line} (exit code {})", self.exit_code)
    }
}
