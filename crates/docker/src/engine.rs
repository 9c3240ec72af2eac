//! The connection to an engine: every request has an end, and every failure a name.

use std::future::Future;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as Trouble;
use bollard::models::{Runtime, SystemInfo};
use brig_sandbox::{Error, Result};

use crate::address::Address;

/// Spoken by Docker 20.10. Requests name no version, so that every newer engine takes them.
const OLDEST: (u32, u32) = (1, 41);

/// How long a request may take, on a machine however busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

const START: &str = "is it running, and may you use it? sudo systemctl start docker; \
    sudo usermod -aG docker $USER; or name another with DOCKER_HOST";

#[derive(Clone, Debug)]
pub struct Engine {
    pub docker: Docker,
    pub address: Address,
    pub patience: Duration,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub version: String,
    pub api: String,
    pub architecture: String,
    pub kernel: String,
    pub runtimes: Vec<Registered>,
    pub default_runtime: String,
    pub security: Vec<String>,
    pub cgroup: String,
    pub memory: bool,
    pub swap: bool,
    pub cpu: bool,
    pub pids: bool,
    pub warnings: Vec<String>,
}

/// A runtime that an engine knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    pub name: String,
    pub path: String,
    pub args: Vec<String>,
}

impl Engine {
    pub async fn connect(address: Address, patience: Duration) -> Result<(Self, Facts)> {
        let docker = open(&address)?;
        let engine = Self {
            docker,
            address,
            patience,
        };
        let version = engine.timed(engine.docker.version()).await;
        let version = version.map_err(|trouble| unreachable(&engine.address, &trouble))?;
        let api = version.api_version.unwrap_or_default();
        if number(&api) < Some(OLDEST) {
            return Err(Error::Engine {
                code: "engine.old",
                step: format!("speak to the engine at {}", engine.address),
                problem: format!("it speaks version {api}, and is older than Docker 20.10"),
                hint: Some("install a newer engine".into()),
            });
        }
        let info = engine
            .ask("ask the engine what it is", engine.docker.info())
            .await?;
        Ok((engine, Facts::of(info, api)))
    }

    /// Whether the engine shares this machine's files and kernel.
    pub fn is_local(&self) -> bool {
        self.address.is_local()
    }

    /// One request. The step says what was to be done.
    pub async fn ask<T>(
        &self,
        step: &str,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T> {
        self.timed(answer)
            .await
            .map_err(|trouble| failure(step, &trouble))
    }

    /// The same for something that may not be there.
    pub async fn find<T>(
        &self,
        step: &str,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<Option<T>> {
        match self.timed(answer).await {
            Ok(answer) => Ok(Some(answer)),
            Err(trouble) if status(&trouble) == Some(404) => Ok(None),
            Err(trouble) => Err(failure(step, &trouble)),
        }
    }

    async fn timed<T>(
        &self,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        tokio::time::timeout(self.patience, answer)
            .await
            .unwrap_or(Err(Trouble::RequestTimeoutError))
    }

    /// Ends a container, if it is still there, and waits until it is gone. One that somebody else
    /// is removing is waited for.
    pub async fn remove(&self, container: &str) -> Result<bool> {
        let options = || {
            let options = bollard::query_parameters::RemoveContainerOptionsBuilder::new();
            Some(options.force(true).v(true).build())
        };
        for _ in 0..200 {
            match self
                .timed(self.docker.remove_container(container, options()))
                .await
            {
                Ok(()) => return Ok(true),
                Err(trouble) => match status(&trouble) {
                    Some(404) => return Ok(false),
                    Some(409) => tokio::time::sleep(Duration::from_millis(25)).await,
                    _ => return Err(failure("remove a container", &trouble)),
                },
            }
        }
        Err(Error::Engine {
            code: "engine.failed",
            step: "remove a container".into(),
            problem: format!("`{container}` is being removed by somebody else, and does not go"),
            hint: None,
        })
    }
}

fn open(address: &Address) -> Result<Docker> {
    let version = bollard::API_DEFAULT_VERSION;
    // Held by the caller, for the whole of a request.
    const LONG: u64 = 24 * 60 * 60;
    let opened = match address {
        Address::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), LONG, version),
        Address::Tcp(host) => Docker::connect_with_http(&format!("tcp://{host}"), LONG, version),
        Address::Tls { host, keys } => Docker::connect_with_ssl(
            &format!("tcp://{host}"),
            &keys.join("key.pem"),
            &keys.join("cert.pem"),
            &keys.join("ca.pem"),
            LONG,
            version,
        ),
    };
    opened.map_err(|trouble| unreachable(address, &trouble))
}

/// Such as `1.41`.
fn number(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub fn status(trouble: &Trouble) -> Option<u16> {
    match trouble {
        Trouble::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn unreachable(address: &Address, trouble: &Trouble) -> Error {
    Error::Engine {
        code: "engine.unreachable",
        step: format!("reach the engine at {address}"),
        problem: describe(trouble),
        hint: Some(START.into()),
    }
}

/// What a failed request is called.
pub fn failure(step: &str, trouble: &Trouble) -> Error {
    let (code, hint) = match trouble {
        Trouble::RequestTimeoutError => (
            "engine.timeout",
            Some("is the engine overloaded? docker ps should answer at once"),
        ),
        Trouble::DockerResponseServerError { .. } | Trouble::DockerStreamError { .. } => {
            ("engine.failed", None)
        }
        _ => ("engine.unreachable", Some(START)),
    };
    Error::Engine {
        code,
        step: step.into(),
        problem: describe(trouble),
        hint: hint.map(str::to_owned),
    }
}

fn describe(trouble: &Trouble) -> String {
    match trouble {
        Trouble::DockerResponseServerError {
            status_code,
            message,
        } => {
            format!("the engine answers {status_code}: {}", message.trim())
        }
        Trouble::DockerStreamError { error } => format!("the engine says: {error}"),
        Trouble::RequestTimeoutError => "no answer in time".into(),
        other => {
            // The innermost error is the one that says something.
            let mut cause: &dyn std::error::Error = other;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            cause.to_string()
        }
    }
}

impl Facts {
    fn of(info: SystemInfo, api: String) -> Self {
        let registered = |(name, runtime): (String, Runtime)| Registered {
            name,
            path: runtime.path.unwrap_or_default(),
            args: runtime.runtime_args.unwrap_or_default(),
        };
        let runtimes = info.runtimes.unwrap_or_default().into_iter();
        let mut runtimes: Vec<Registered> = runtimes.map(registered).collect();
        runtimes.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            version: info.server_version.unwrap_or_default(),
            api,
            architecture: info.architecture.unwrap_or_default(),
            kernel: info.kernel_version.unwrap_or_default(),
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            security: info.security_options.unwrap_or_default(),
            cgroup: info
                .cgroup_version
                .map(|version| version.to_string())
                .unwrap_or_default(),
            memory: info.memory_limit == Some(true),
            swap: info.swap_limit == Some(true),
            cpu: info.cpu_cfs_quota == Some(true),
            pids: info.pids_limit == Some(true),
            warnings: info.warnings.unwrap_or_default(),
        }
    }

    /// Whether the engine names this security option, such as `apparmor`.
    pub fn has(&self, option: &str) -> bool {
        let name = format!("name={option}");
        self.security
            .iter()
            .any(|given| given.split(',').any(|part| part == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status_code: u16, message: &str) -> Trouble {
        Trouble::DockerResponseServerError {
            status_code,
            message: message.into(),
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(number("1.41") >= Some(OLDEST) && number("1.100") > Some(OLDEST));
        for old in ["1.9", "1.40", "", "x"] {
            assert!(number(old) < Some(OLDEST), "{old}");
        }
    }

    #[test]
    fn failures_have_stable_codes() {
        for (trouble, code) in [
            (answer(500, "no space"), "engine.failed"),
            (Trouble::RequestTimeoutError, "engine.timeout"),
            (
                Trouble::IOError {
                    err: std::io::ErrorKind::ConnectionRefused.into(),
                },
                "engine.unreachable",
            ),
        ] {
            assert_eq!(failure("do it", &trouble).code(), code);
        }
        let text = failure("create a container", &answer(500, "no space\n")).to_string();
        assert_eq!(text, "create a container: the engine answers 500: no space");
    }

    #[test]
    fn security_options_are_told_by_name() {
        let facts = Facts {
            security: vec![
                "name=seccomp,profile=default".into(),
                "name=apparmor".into(),
            ],
            ..Facts::default()
        };
        assert!(facts.has("seccomp") && facts.has("apparmor"));
        assert!(!facts.has("rootless") && !facts.has("app"));
    }
}
