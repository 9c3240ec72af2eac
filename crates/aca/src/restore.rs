//! Sandboxes that were not created with the policy they are to have: from a snapshot, or of another process.

use std::sync::Arc;
use std::time::Instant;

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use serde_json::{Value, json};

use crate::client::{Call, Client, Failure};
use crate::create::{Wanted, finished};
use crate::lists::{id_of, ids, sandboxes};
use crate::policy;
use crate::remote::Remote;
use crate::settings;

impl Remote {
    /// Creates a sandbox from a snapshot. Neither a policy nor a label can be sent with it: the policy that it
    /// wakes up with must be closed, is replaced and read back, and only then something runs.
    pub(crate) async fn restore(
        client: &Arc<Client>,
        snapshot: &str,
        wanted: &Wanted,
    ) -> Result<Self> {
        settings::check_segment(snapshot).map_err(|problem| Error::InvalidConfig {
            what: "snapshot id",
            problem,
        })?;
        let (client, wanted, snapshot) = (client.clone(), wanted.clone(), snapshot.to_owned());
        finished(async move {
            let step = "restore a snapshot";
            let before = sandboxes(&client, None).await;
            let before = ids(&before.map_err(|failure| client.error(step, &failure))?);
            let method = client.account.api.create.clone();
            let call = Call::new(method, "/sandboxes".into())
                .json(json!({"sourcesRef": {"snapshot": {"id": snapshot}}}))
                .slow();
            let answered = client.once(&call).await.and_then(|value| id_of(&value));
            let id = match answered {
                Ok(id) => id,
                Err(failure) if failure.is_uncertain() => {
                    return Err(left_by_restore(&client, &snapshot, &before, &failure).await);
                }
                Err(failure) => return Err(client.error(step, &failure)),
            };
            let remote = Self::new(client, id);
            let result = remote.take_over(&wanted).await;
            remote.or_delete(result).await
        })
        .await
    }

    /// Makes a sandbox that was not created with this policy ready to run something.
    pub(crate) async fn take_over(&self, wanted: &Wanted) -> Result<()> {
        let found = self.until_running().await?;
        if !policy::is_closed(&found["egressPolicy"]) {
            return Err(self.open(&found["egressPolicy"].to_string()));
        }
        if !wanted.size.holds(&found["resources"]) {
            return Err(self.differs("resources", &found["resources"].to_string()));
        }
        self.set_policy(&wanted.policy).await?;
        self.keep_backstop(&found, wanted).await?;
        self.prepare().await
    }
}

/// Names what the request may have made. A sandbox from a snapshot has no label, and another process may have
/// restored the same snapshot: which one is ours is not known, so none is deleted.
async fn left_by_restore(
    client: &Arc<Client>,
    snapshot: &str,
    before: &[String],
    failure: &Failure,
) -> Error {
    let until = Instant::now() + client.timing.lookup;
    let found = loop {
        let found = match sandboxes(client, None).await {
            Ok(found) => Ok(new_ones(&found, snapshot, before)),
            Err(failure) => Err(client.unavailable(&failure).reason),
        };
        match found {
            Ok(new) if !new.is_empty() => {
                break format!("one of these may be left: {}", new.join(", "));
            }
            Ok(_) if Instant::now() >= until => break "no sandbox from it was found".into(),
            Err(problem) if Instant::now() >= until => {
                break format!("what it left can't be looked for: {problem}");
            }
            _ => tokio::time::sleep(client.timing.poll).await,
        }
    };
    Error::Engine {
        code: ReasonCode::AzureLeft,
        step: "restore a snapshot".into(),
        problem: format!("{}; {found}", client.unavailable(failure).reason),
        hint: Some(format!(
            "look for sandboxes of the group `{}` from the snapshot {snapshot}, and delete those that no session uses",
            client.account.group
        )),
    }
}

/// Those from the snapshot that were not there before.
fn new_ones(found: &[Value], snapshot: &str, before: &[String]) -> Vec<String> {
    let new = found.iter().filter(|one| {
        one["sourcesRef"]["snapshot"]["id"] == *snapshot || one["snapshotId"] == *snapshot
    });
    let mut new = ids(&new.cloned().collect::<Vec<_>>());
    new.retain(|id| !before.contains(id));
    new
}
