//! The sandbox group: whether it exists, has an identity, and may be used.

use std::time::Instant;

use brig_reason::ReasonCode;
use brig_sandbox::Unavailable;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Call, Client, Failure};

/// Creates the group if that is configured, and refuses one that can't be used. Nothing is created otherwise.
pub(crate) async fn check(client: &Client) -> Result<(), Unavailable> {
    let account = &client.account;
    let mut created = false;
    if account.ensure_location.is_some() || !account.allows_identity {
        let group = match client.repeated(&Call::arm(Method::GET)).await {
            Err(failure) if failure.is_missing() => match &account.ensure_location {
                Some(location) => {
                    created = true;
                    create(client, location).await?
                }
                None => return Err(missing(client, &failure)),
            },
            Err(failure) => return Err(unknown(client, &failure)),
            Ok(group) => group,
        };
        let identity = group["identity"]["type"].as_str().unwrap_or("None");
        if identity != "None" && !account.allows_identity {
            return Err(Unavailable {
                code: ReasonCode::AzureIdentity,
                reason: format!(
                    "the sandbox group `{}` has a managed identity ({identity}), whose tokens code could use",
                    account.group
                ),
                fix: Some(format!(
                    "use a group without one, accept it with `group_identity: allow`, or remove it: {}",
                    account.az_rest("patch", Some(r#"{"identity": {"type": "None"}}"#))
                )),
            });
        }
    }
    usable(client, created).await
}

async fn create(client: &Client, location: &str) -> Result<Value, Unavailable> {
    let call = Call::arm(Method::PUT).json(json!({ "location": location }));
    let failed = |failure: &Failure| {
        let cause = client.unavailable(failure);
        Unavailable {
            reason: format!("the sandbox group could not be created: {}", cause.reason),
            ..cause
        }
    };
    client
        .repeated(&call)
        .await
        .map_err(|failure| failed(&failure))?;
    let until = Instant::now() + client.timing.settle;
    loop {
        let group = client.repeated(&Call::arm(Method::GET)).await;
        let group = group.map_err(|failure| failed(&failure))?;
        let state = group["properties"]["provisioningState"].as_str();
        match state.unwrap_or("Succeeded") {
            "Succeeded" => return Ok(group),
            state @ ("Failed" | "Canceled") => {
                return Err(Unavailable {
                    code: ReasonCode::AzureGroup,
                    reason: format!("the sandbox group was not created: {state}"),
                    fix: Some(format!(
                        "see why: az monitor activity-log list --output table --resource-group {}",
                        client.account.resource_group
                    )),
                });
            }
            _ if Instant::now() >= until => {
                return Err(Unavailable {
                    code: ReasonCode::AzureGroup,
                    reason: "the sandbox group is still being created".into(),
                    fix: Some(format!(
                        "try again when its state is Succeeded: {}",
                        client.account.az_rest("get", None)
                    )),
                });
            }
            _ => tokio::time::sleep(client.timing.poll).await,
        }
    }
}

/// Whether the service knows the group and lets us use it. A new group may take a while, and so may a role in it.
async fn usable(client: &Client, created: bool) -> Result<(), Unavailable> {
    let call = Call::new(Method::GET, "/sandboxes".into()).query("labels", "brig=none");
    let until = Instant::now() + client.timing.new_group;
    loop {
        let failure = match client.repeated(&call).await {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        let young = created && matches!(failure.status(), Some(403 | 404));
        if !young || Instant::now() >= until {
            return Err(client.unavailable(&failure));
        }
        tokio::time::sleep(client.timing.poll).await;
    }
}

fn missing(client: &Client, failure: &Failure) -> Unavailable {
    let cause = client.unavailable(failure);
    Unavailable {
        reason: format!(
            "there is no sandbox group `{}` ({})",
            client.account.group, cause.reason
        ),
        ..cause
    }
}

fn unknown(client: &Client, failure: &Failure) -> Unavailable {
    let cause = client.unavailable(failure);
    match failure.status() {
        Some(403) => Unavailable {
            reason: format!(
                "whether the sandbox group has a managed identity can't be looked up: {}",
                cause.reason
            ),
            fix: Some(format!(
                "set `group_identity: allow` if no identity matters, or: {}",
                client.role_fix("Reader")
            )),
            ..cause
        },
        _ => cause,
    }
}
