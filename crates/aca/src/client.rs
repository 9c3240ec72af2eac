//! Requests to the service and to Azure Resource Manager. What may be repeated is repeated a few times; what
//! creates or runs something is sent once.

use std::sync::Arc;
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result, Unavailable};
use reqwest::{Method, Url, redirect};
use serde_json::Value;

use crate::account::{Account, Endpoint};
use crate::credentials::{Choice, Identity, Tokens};
pub(crate) use crate::failure::Failure;
use crate::failure::{causes, message, refused};
use crate::settings::{Options, Timing};

/// How often a request is sent that may be repeated.
const TRIES: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Of an answer that is not a file.
const LARGEST: usize = 16 * 1024 * 1024;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    arm: bool,
    path: String,
    query: Vec<(&'static str, String)>,
    /// In place of all that.
    link: Option<Url>,
    body: Body,
    slow: bool,
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Json(Value),
    Bytes(bytes::Bytes),
}

impl Call {
    /// To the service, below the sandbox group.
    pub(crate) fn new(method: Method, path: String) -> Self {
        Self {
            method,
            arm: false,
            path,
            query: Vec::new(),
            link: None,
            body: Body::None,
            slow: false,
        }
    }

    /// About the sandbox group itself, to Azure Resource Manager.
    pub(crate) fn arm(method: Method) -> Self {
        Self {
            arm: true,
            ..Self::new(method, String::new())
        }
    }

    /// The next page of a list, as the service named it.
    pub(crate) fn link(link: Url) -> Self {
        Self {
            link: Some(link),
            ..Self::new(Method::GET, String::new())
        }
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn json(self, value: Value) -> Self {
        Self {
            body: Body::Json(value),
            ..self
        }
    }

    pub(crate) fn bytes(self, bytes: impl Into<bytes::Bytes>) -> Self {
        Self {
            body: Body::Bytes(bytes.into()),
            slow: true,
            ..self
        }
    }

    /// It may take long.
    pub(crate) fn slow(self) -> Self {
        Self { slow: true, ..self }
    }
}

/// Sends requests for one sandbox group.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    tokens: Tokens,
    choice: Option<Choice>,
    pub account: Account,
    pub timing: Timing,
}

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Self, Unavailable> {
        let account = options.account()?;
        // Fails only if somebody has chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .https_only(true)
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(20));
        if let Some(path) = &account.ca_file {
            let problem = |problem: String| Unavailable {
                code: ReasonCode::AzureSettings,
                reason: format!("`{}` can't be used as `ca_file`: {problem}", path.display()),
                fix: Some("name a PEM file with certificates".into()),
            };
            let pem = std::fs::read(path).map_err(|error| problem(error.to_string()))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|error| problem(error.to_string()))?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder
            .build()
            .map_err(|error| Unavailable::new(format!("no HTTP client: {error}")))?;
        let (source, choice): (Arc<dyn crate::TokenSource>, _) = match &options.tokens {
            Some(tokens) => (tokens.clone(), None),
            None => {
                let identity = Identity::new(account.credential);
                let choice = identity.choice();
                (Arc::new(identity), Some(choice))
            }
        };
        Ok(Self {
            http,
            tokens: Tokens::new(source),
            choice,
            account,
            timing: options.timing.clone(),
        })
    }

    /// Sends it once. What is not a JSON object or array is null.
    pub(crate) async fn once(&self, call: &Call) -> Result<Value, Failure> {
        let response = self.open(call).await?;
        let mut bytes = Vec::new();
        read(response, LARGEST, |piece| bytes.extend_from_slice(piece)).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Unreadable("it is not JSON".into()))?;
        if value["success"] == Value::Bool(false) {
            return Err(Failure::Refused {
                status: 200,
                title: "not successful".into(),
                detail: message(value["error"].as_str().unwrap_or_default(), ""),
                retry_after: None,
            });
        }
        Ok(value)
    }

    /// Sends it until there is an answer, a few times. Only for what has the same effect twice.
    pub(crate) async fn repeated(&self, call: &Call) -> Result<Value, Failure> {
        let mut wait = self.timing.retry;
        for _ in 1..TRIES {
            match self.once(call).await {
                Err(failure) if failure.is_passing() => {
                    tokio::time::sleep(self.pause(&failure, wait)).await;
                    wait *= 2;
                }
                done => return done,
            }
        }
        self.once(call).await
    }

    /// The first bytes of a file. Asked for a few times, as in [`Self::repeated`].
    pub(crate) async fn download(&self, call: &Call, most: usize) -> Result<Vec<u8>, Failure> {
        let mut wait = self.timing.retry;
        let mut left = TRIES;
        loop {
            left -= 1;
            let mut bytes = Vec::new();
            let got = match self.open(call).await {
                Ok(response) => read(response, most, |piece| bytes.extend_from_slice(piece)).await,
                Err(failure) => Err(failure),
            };
            match got {
                Err(failure) if failure.is_passing() && left > 0 => {
                    tokio::time::sleep(self.pause(&failure, wait)).await;
                    wait *= 2;
                }
                // There was more.
                Err(Failure::Unreadable(_)) => {
                    bytes.truncate(most);
                    return Ok(bytes);
                }
                Err(failure) => return Err(failure),
                Ok(()) => return Ok(bytes),
            }
        }
    }

    fn pause(&self, failure: &Failure, wait: Duration) -> Duration {
        let asked = match failure {
            Failure::Refused { retry_after, .. } => *retry_after,
            _ => None,
        };
        asked.unwrap_or(wait).min(LONGEST_WAIT)
    }

    async fn open(&self, call: &Call) -> Result<reqwest::Response, Failure> {
        let (endpoint, base) = match call.arm {
            true => (&self.account.arm, &self.account.arm_path),
            false => (&self.account.service, &self.account.group_path),
        };
        let token = self.tokens.token(&endpoint.scope).await;
        let token = token.map_err(|problem| Failure::NoToken {
            problem: message(&problem, ""),
            fix: self
                .choice
                .map_or("check where tokens come from", Choice::fix),
        })?;
        let url = match &call.link {
            Some(link) => link.clone(),
            None => url(
                endpoint,
                &format!("{base}{}", call.path),
                call,
                &self.account,
            ),
        };
        let limit = match call.slow {
            true => self.timing.slow_request,
            false => self.timing.request,
        };
        let mut request = (self.http.request(call.method.clone(), url))
            .timeout(limit)
            .header("accept", "*/*")
            .header("user-agent", concat!("brig/", env!("CARGO_PKG_VERSION")))
            .bearer_auth(token.secret());
        request = match &call.body {
            Body::None => request,
            Body::Json(value) => request
                .header("content-type", "application/json")
                .body(value.to_string()),
            Body::Bytes(bytes) => request
                .header("content-type", "application/octet-stream")
                .body(bytes.clone()),
        };
        let response = request
            .send()
            .await
            .map_err(|error| match error.is_connect() {
                true => Failure::NotSent(causes(&error)),
                false => Failure::NoAnswer(causes(&error)),
            })?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refused(response, token.secret()).await)
    }

    /// What to tell the user.
    pub(crate) fn error(&self, step: &str, failure: &Failure) -> Error {
        let cause = self.unavailable(failure);
        Error::Engine {
            code: cause.code,
            step: step.to_owned(),
            problem: failure.text(),
            hint: cause.fix,
        }
    }

    /// Why the backend can't be used, and what would change it.
    pub(crate) fn unavailable(&self, failure: &Failure) -> Unavailable {
        let account = &self.account;
        let (code, fix) = match failure {
            Failure::NoToken { fix, .. } => (ReasonCode::AzureCredential, Some((*fix).to_owned())),
            Failure::NotSent(_) | Failure::NoAnswer(_) => (
                ReasonCode::AzureUnreachable,
                Some(format!(
                    "check the region and the network: curl -sSI {}",
                    account.service.url
                )),
            ),
            // Of an image registry, not of our token.
            Failure::Refused {
                status: 401, title, ..
            } if title != "RegistryAuthFailed" => (
                ReasonCode::AzureCredential,
                Some(format!(
                    "check `scope` and the tenant (az account show), and sign in again: az login --scope {}",
                    account.service.scope
                )),
            ),
            Failure::Refused { status: 403, .. } => (
                ReasonCode::AzureRole,
                Some(self.role_fix("Container Apps SandboxGroup Data Owner")),
            ),
            Failure::Refused {
                status: 404, title, ..
            } if title != "SandboxNotFound" => {
                (ReasonCode::AzureGroup, Some(self.group_fix(title)))
            }
            Failure::Refused { status: 429, .. } => (
                ReasonCode::AzureFailed,
                Some("wait a minute, and run fewer sandboxes at a time".into()),
            ),
            _ => (ReasonCode::AzureFailed, None),
        };
        Unavailable {
            code,
            reason: failure.text(),
            fix,
        }
    }

    /// For the account that the Azure CLI is signed in with.
    pub(crate) fn role_fix(&self, role: &str) -> String {
        format!(
            "az role assignment create --role \"{role}\" --assignee \"$(az ad signed-in-user show --query id --output tsv)\" --scope {}",
            self.account.arm_path
        )
    }

    fn group_fix(&self, title: &str) -> String {
        let account = &self.account;
        let region = account.ensure_location.as_ref().or(account.region.as_ref());
        let region = region.map_or("REGION", String::as_str);
        match title {
            "SubscriptionNotFound" => {
                "correct `subscription`; these can be used: az account list --output table".into()
            }
            "ResourceGroupNotFound" => format!(
                "correct `resource_group`, or create it: az group create --name {} --location {region}",
                account.resource_group
            ),
            _ => format!(
                "correct `sandbox_group`, or set `ensure_group_location`, or create it: {}",
                account.az_rest("put", Some(&format!("{{\"location\": \"{region}\"}}")))
            ),
        }
    }

    /// Where a list goes on: as it is named, but only on the same host, because the token goes there.
    pub(crate) fn next_page(&self, link: &str) -> Result<Url, Failure> {
        let own = &self.account.service.url;
        let mut url = own
            .join(link)
            .ok()
            .filter(|url| url.scheme() == "https" && url.origin() == own.origin())
            .ok_or_else(|| Failure::Unreadable("a list goes on at another host".into()))?;
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        if !url.query_pairs().any(|(name, _)| name == "api-version") {
            url.query_pairs_mut()
                .append_pair("api-version", self.account.api.version);
        }
        Ok(url)
    }
}

fn url(endpoint: &Endpoint, path: &str, call: &Call, account: &Account) -> Url {
    let mut url = endpoint.url.clone();
    url.set_path(path);
    {
        let mut pairs = url.query_pairs_mut();
        for (name, value) in &call.query {
            pairs.append_pair(name, value);
        }
        pairs.append_pair("api-version", account.api.version);
    }
    url
}

/// Fails if there is more than that; the first bytes were handed on.
pub(crate) async fn read(
    mut response: reqwest::Response,
    most: usize,
    mut piece: impl FnMut(&[u8]),
) -> Result<(), Failure> {
    let mut left = most;
    loop {
        let next = response.chunk().await;
        match next.map_err(|error| Failure::NoAnswer(causes(&error)))? {
            None => return Ok(()),
            Some(bytes) if bytes.len() <= left => {
                left -= bytes.len();
                piece(&bytes);
            }
            Some(bytes) => {
                piece(&bytes[..left]);
                return Err(Failure::Unreadable("it is too long".into()));
            }
        }
    }
}
