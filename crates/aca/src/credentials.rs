//! Tokens. The chain picks one source by what is there; if that one fails, no other is tried.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use azure_core::credentials::{Secret, TokenCredential};
use azure_identity::{
    AzureCliCredential, AzureCliCredentialOptions, ClientSecretCredential,
    DeveloperToolsCredential, DeveloperToolsCredentialOptions, Executor, ManagedIdentityCredential,
    ManagedIdentityCredentialOptions, UserAssignedId, WorkloadIdentityCredential,
};
use brig_sandbox::HostPrograms;
use tokio::sync::Mutex;

/// Refreshed this long before its end.
const MARGIN: Duration = Duration::from_secs(300);

/// A token and its end.
#[derive(Clone)]
pub struct Token {
    secret: String,
    expires: SystemTime,
}

impl Token {
    /// It is never shown.
    pub fn new(secret: impl Into<String>, expires: SystemTime) -> Self {
        Self {
            secret: secret.into(),
            expires,
        }
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Where tokens come from.
#[async_trait]
pub trait TokenSource: Send + Sync + fmt::Debug {
    /// A token for one scope, or why there is none.
    async fn token(&self, scope: &str) -> Result<Token, String>;
}

/// A source that the user can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    ClientSecret,
    WorkloadIdentity,
    ManagedIdentity,
    AzureCli,
    DeveloperTools,
}

impl Choice {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "client-secret" => Choice::ClientSecret,
            "workload-identity" => Choice::WorkloadIdentity,
            "managed-identity" => Choice::ManagedIdentity,
            "azure-cli" => Choice::AzureCli,
            "developer-tools" => Choice::DeveloperTools,
            _ => return None,
        })
    }

    /// By what the environment has. A managed identity of a virtual machine can't be seen there, and has to be
    /// named.
    fn found(variable: impl Fn(&str) -> Option<String>) -> Self {
        let has = |names: &[&str]| names.iter().all(|name| variable(name).is_some());
        if has(&["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"]) {
            Choice::ClientSecret
        } else if has(&["AZURE_FEDERATED_TOKEN_FILE"]) {
            Choice::WorkloadIdentity
        } else if has(&["IDENTITY_ENDPOINT", "IDENTITY_HEADER"]) {
            Choice::ManagedIdentity
        } else {
            Choice::DeveloperTools
        }
    }

    /// What would make it work.
    pub(crate) fn fix(self) -> &'static str {
        match self {
            Choice::ClientSecret => {
                "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
            }
            Choice::WorkloadIdentity => {
                "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE"
            }
            Choice::ManagedIdentity => {
                "assign a managed identity to this machine; for one of several, set AZURE_CLIENT_ID"
            }
            Choice::AzureCli => "run `az login`",
            Choice::DeveloperTools => "run `az login` or `azd auth login`",
        }
    }

    fn build(self) -> azure_core::Result<Arc<dyn TokenCredential>> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Ok(match self {
            Choice::ClientSecret => ClientSecretCredential::new(
                &variable("AZURE_TENANT_ID"),
                variable("AZURE_CLIENT_ID"),
                Secret::new(variable("AZURE_CLIENT_SECRET")),
                None,
            )?,
            Choice::WorkloadIdentity => WorkloadIdentityCredential::new(None)?,
            Choice::ManagedIdentity => {
                let client = Some(variable("AZURE_CLIENT_ID")).filter(|id| !id.is_empty());
                let options = ManagedIdentityCredentialOptions {
                    user_assigned_id: client.map(UserAssignedId::ClientId),
                    ..Default::default()
                };
                ManagedIdentityCredential::new(Some(options))?
            }
            Choice::AzureCli => AzureCliCredential::new(Some(AzureCliCredentialOptions {
                executor: Some(Arc::new(HostExecutor)),
                ..Default::default()
            }))?,
            Choice::DeveloperTools => {
                DeveloperToolsCredential::new(Some(DeveloperToolsCredentialOptions {
                    executor: Some(Arc::new(HostExecutor)),
                }))?
            }
        })
    }
}

/// What `azure_identity` puts before the words of a command for the shell.
const SHELL_PREFIX: &str = "cd /bin && ";

/// Runs `az` and `azd`, which `azure_identity` leaves to a shell to find: not in the environment of a project.
#[derive(Debug)]
struct HostExecutor;

#[async_trait]
impl Executor for HostExecutor {
    async fn run(&self, _shell: &OsStr, args: &[&OsStr]) -> io::Result<Output> {
        let words = args.last().and_then(|line| line.to_str());
        let mut words = words
            .and_then(|line| line.strip_prefix(SHELL_PREFIX))
            .filter(|line| !line.contains(['"', '\'', '\\', '$', '`', ';', '&', '|']))
            .ok_or_else(|| io::Error::other("an unknown command of azure_identity"))?
            .split_whitespace();
        let command = HostPrograms::of_path().command(words.next().unwrap_or_default());
        let mut command = tokio::process::Command::from(command.map_err(io::Error::other)?);
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        command.output().await
    }
}

/// Of `azure_identity`.
#[derive(Debug)]
pub(crate) struct Identity {
    choice: Choice,
    credential: Mutex<Option<Arc<dyn TokenCredential>>>,
}

impl Identity {
    pub(crate) fn new(choice: Option<Choice>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            choice: choice.unwrap_or_else(|| Choice::found(variable)),
            credential: Mutex::new(None),
        }
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }
}

#[async_trait]
impl TokenSource for Identity {
    async fn token(&self, scope: &str) -> Result<Token, String> {
        let mut credential = self.credential.lock().await;
        let credential = match &mut *credential {
            Some(credential) => credential.clone(),
            none => {
                let built = self.choice.build().map_err(|error| error.to_string())?;
                none.insert(built).clone()
            }
        };
        let token = credential.get_token(&[scope], None).await;
        let token = token.map_err(|error| error.to_string())?;
        let seconds = u64::try_from(token.expires_on.unix_timestamp()).unwrap_or(0);
        Ok(Token::new(
            token.token.secret(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        ))
    }
}

/// Asks again only when a token is about to end.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: Arc<dyn TokenSource>,
    known: Mutex<HashMap<String, Token>>,
}

impl Tokens {
    pub(crate) fn new(source: Arc<dyn TokenSource>) -> Self {
        Self {
            source,
            known: Mutex::default(),
        }
    }

    pub(crate) async fn token(&self, scope: &str) -> Result<Token, String> {
        let mut known = self.known.lock().await;
        let fresh = |token: &&Token| token.expires > SystemTime::now() + MARGIN;
        if let Some(token) = known.get(scope).filter(fresh) {
            return Ok(token.clone());
        }
        let token = self.source.token(scope).await?;
        known.insert(scope.to_owned(), token.clone());
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_chain_picks_by_what_is_there() {
        let choice =
            |names: &[&str]| Choice::found(|name| names.contains(&name).then(|| "set".to_owned()));
        let secret = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"];
        assert_eq!(choice(&secret), Choice::ClientSecret);
        assert_eq!(choice(&secret[..2]), Choice::DeveloperTools);
        assert_eq!(
            choice(&["AZURE_FEDERATED_TOKEN_FILE"]),
            Choice::WorkloadIdentity
        );
        assert_eq!(
            choice(&["IDENTITY_ENDPOINT", "IDENTITY_HEADER"]),
            Choice::ManagedIdentity
        );
        assert_eq!(choice(&[]), Choice::DeveloperTools);
    }

    /// A directory of a project, first in `PATH` of the process that goes on with the test.
    const PROJECT: &str = "BRIG_TEST_PROJECT";

    #[tokio::test]
    async fn az_of_a_project_is_not_started() {
        use std::os::unix::fs::PermissionsExt;
        let Some(project) = std::env::var_os(PROJECT) else {
            let project = tempfile::tempdir().expect("a directory");
            let az = project.path().join("az");
            std::fs::write(&az, "#!/bin/sh\n: > \"$0.started\"\nexit 1\n").expect("a program");
            let all = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&az, all).expect("a mode");
            let mut again = brig_testing::again(&brig_testing::test_name!());
            again.env(PROJECT, project.path());
            again.env(
                "PATH",
                format!("{}:/usr/bin:/bin", project.path().display()),
            );
            return brig_testing::passes(again);
        };
        let started = std::path::Path::new(&project).join("az.started");
        let source = Identity::new(Some(Choice::AzureCli));
        let token = source.token("https://example.com/.default").await;
        let error = token.expect_err("no az of the system is logged in");
        assert!(!started.exists(), "{error}");
        assert!(!error.contains("unknown command"), "{error}");
        if !std::path::Path::new("/usr/bin/az").exists() {
            assert!(error.contains("could change it"), "{error}");
        }
        // The control: a shell finds it.
        let mut shell = tokio::process::Command::new("/bin/sh");
        let _ = shell.args(["-c", "cd /bin && az"]).output().await;
        assert!(started.exists());
    }

    #[derive(Debug)]
    struct Counted(AtomicUsize, Duration);

    #[async_trait]
    impl TokenSource for Counted {
        async fn token(&self, scope: &str) -> Result<Token, String> {
            let count = self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Token::new(
                format!("{scope}-{count}"),
                SystemTime::now() + self.1,
            ))
        }
    }

    #[tokio::test]
    async fn a_token_is_used_until_it_is_about_to_end() {
        let hour = Tokens::new(Arc::new(Counted(AtomicUsize::new(0), 12 * MARGIN)));
        for _ in 0..3 {
            assert_eq!(hour.token("a").await.expect("a token").secret(), "a-0");
        }
        assert_eq!(hour.token("b").await.expect("a token").secret(), "b-1");
        let minute = Tokens::new(Arc::new(Counted(AtomicUsize::new(0), MARGIN / 5)));
        assert_eq!(minute.token("a").await.expect("a token").secret(), "a-0");
        assert_eq!(minute.token("a").await.expect("a token").secret(), "a-1");
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = Token::new("very-secret", SystemTime::now());
        assert!(!format!("{token:?}").contains("secret"));
    }
}
