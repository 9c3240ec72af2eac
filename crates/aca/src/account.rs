//! Where requests go, and which hosts get a token.

use std::path::PathBuf;

use brig_reason::ReasonCode;
use brig_sandbox::Unavailable;
use reqwest::Url;

use crate::api::Api;
use crate::credentials::Choice;
use crate::settings::invalid;

/// Where requests go, and with which tokens.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub url: Url,
    pub scope: String,
}

/// All that is needed to send requests.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub api: &'static Api,
    pub service: Endpoint,
    pub arm: Endpoint,
    pub group_path: String,
    pub arm_path: String,
    pub resource_group: String,
    pub group: String,
    /// If it is known.
    pub region: Option<String>,
    pub ensure_location: Option<String>,
    pub allows_identity: bool,
    pub credential: Option<Choice>,
    pub ca_file: Option<PathBuf>,
}

/// A token for Azure goes only to a host of Azure. Another host gets one only for a scope that was given for it.
pub(crate) fn endpoint(
    name: &'static str,
    url: &str,
    scope: Option<&str>,
    default_scope: &str,
) -> Result<Endpoint, Unavailable> {
    let parsed = Url::parse(url).map_err(|error| invalid(name, error.to_string()))?;
    let host = parsed.host_str().unwrap_or_default();
    if parsed.scheme() != "https" || host.is_empty() {
        return Err(invalid(name, "it must begin with https://".into()));
    }
    let azure = host == "management.azure.com"
        || host == "management.azuredevcompute.io"
        || host.ends_with(".azuredevcompute.io");
    if !azure && scope.is_none() {
        return Err(Unavailable {
            code: ReasonCode::AzureSettings,
            reason: format!("`{host}` is not a host of Azure, so no token for Azure is sent there"),
            fix: Some(format!(
                "set `{}` in config.yaml to the scope of tokens for that host",
                match name {
                    "arm-endpoint" => "arm_scope",
                    _ => "scope",
                }
            )),
        });
    }
    Ok(Endpoint {
        scope: scope.unwrap_or(default_scope).to_owned(),
        url: parsed,
    })
}

impl Account {
    /// A command that does this to the sandbox group.
    pub(crate) fn az_rest(&self, method: &str, body: Option<&str>) -> String {
        let url = format!(
            "{}{}?api-version={}",
            self.arm.url.as_str().trim_end_matches('/'),
            self.arm_path,
            self.api.version
        );
        let body = body.map(|body| format!(" --body '{body}'"));
        format!(
            "az rest --method {method} --url \"{url}\"{}",
            body.unwrap_or_default()
        )
    }
}

impl From<&Account> for String {
    fn from(account: &Account) -> Self {
        format!("{}/{}", account.resource_group, account.group)
    }
}
