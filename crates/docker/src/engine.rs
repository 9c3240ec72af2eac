//! The connection to an engine. Every request has a timeout, and every failure a reason code.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as Trouble;
use bollard::models::{Runtime, SystemInfo};
use brig_reason::ReasonCode;
use brig_sandbox::{Error, HostPrograms, Result};

use crate::address::Address;
use crate::product::Product;
use crate::ssh::Forwarder;

/// How long a request may take, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const START: &str = "is it running, and may you use it? sudo systemctl start docker; \
                     sudo usermod -aG docker $USER; or choose another with DOCKER_HOST";

const SSH: &str = "`ssh -T HOST docker version` must work without a question, with the ssh of the system: use a \
                   key that an agent holds";

#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub docker: Docker,
    pub address: Address,
    pub patience: Duration,
    /// Whether it runs on this machine's kernel.
    local: bool,
    /// The way to an engine behind `ssh`.
    forwarder: Option<Arc<Forwarder>>,
}

/// What an engine reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub product: Product,
    /// Whether an ordinary user runs it.
    pub rootless: bool,
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
    /// How many processors its machine has; 0 if it does not tell.
    pub processors: u32,
    pub warnings: Vec<String>,
}

/// A runtime that an engine knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registered {
    pub name: String,
    pub path: String,
    pub args: Vec<String>,
}

impl Engine {
    pub(crate) async fn connect(
        address: Address,
        patience: Duration,
        programs: &HostPrograms,
    ) -> Result<(Self, Facts)> {
        let (docker, forwarder) = open(&address, programs)?;
        let mut engine = Self {
            docker,
            address,
            patience,
            local: false,
            forwarder,
        };
        let version = engine.timed(engine.docker.version()).await;
        let version = version.map_err(|trouble| engine.unreachable(&trouble))?;
        // Requests contain no version of the API, so that newer engines accept them.
        let (product, number) = Product::of(&version);
        let api = version.api_version.unwrap_or_default();
        if !product.accepts(&number) {
            let oldest = product.differences().oldest_name;
            return Err(Error::Engine {
                code: ReasonCode::EngineOld,
                step: format!("connect to the engine at {}", engine.address),
                problem: format!("its version is {number}, and it is older than {oldest}"),
                hint: Some("install a newer engine".into()),
            });
        }
        let info = engine
            .ask("get the engine's version", engine.docker.info())
            .await?;
        let mut facts = Facts::of(info, product, api);
        // A Unix socket may lead to another machine. That the files are this machine's is proved where they
        // are mounted.
        let own = rustix::system::uname();
        engine.local = engine.address.is_unix() && facts.kernel == own.release().to_string_lossy();
        // Podman does not list it among the security options.
        let of_user = product == Product::Podman && engine.user().is_some_and(|uid| uid != 0);
        if facts.has("rootless") || of_user {
            facts.set_rootless();
        }
        Ok((engine, facts))
    }

    /// Whether the engine may share this machine's files, and shares its kernel or one of the same release.
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Who runs it: whose its socket is. `None` if it may be on another machine.
    pub(crate) fn user(&self) -> Option<u32> {
        let Address::Unix(socket) = &self.address else {
            return None;
        };
        let found = std::fs::metadata(socket).ok()?;
        self.local.then_some(found.uid())
    }

    /// One that nobody answers for.
    #[cfg(test)]
    pub(crate) fn absent(docker: Docker) -> Self {
        Self {
            docker,
            address: Address::Unix("/nonexistent".into()),
            patience: PATIENCE,
            local: true,
            forwarder: None,
        }
    }

    /// Nobody answers there.
    fn unreachable(&self, trouble: &Trouble) -> Error {
        let words = self.forwarder.as_ref().map(|forwarder| forwarder.words());
        match words.filter(|words| !words.is_empty()) {
            Some(words) => failed_ssh(&self.address, words),
            None => unreachable(&self.address, trouble),
        }
    }

    /// One request. The step says what was to be done.
    pub(crate) async fn ask<T>(
        &self,
        step: &str,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T> {
        self.timed(answer)
            .await
            .map_err(|trouble| failure(step, &trouble))
    }

    /// The same for something that may not be there.
    pub(crate) async fn find<T>(
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

    /// The same for a name that only one may have. `None` if another has it.
    pub(crate) async fn unless_taken<T>(
        &self,
        step: &str,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<Option<T>> {
        match self.timed(answer).await {
            Ok(answer) => Ok(Some(answer)),
            Err(trouble) if is_taken(&trouble) => Ok(None),
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

    /// Removes a container, if it exists, and waits until it is gone. Also waits if another process removes it.
    pub(crate) async fn remove(&self, container: &str) -> Result<bool> {
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
                    _ if is_ending(&trouble) => {
                        tokio::time::sleep(Duration::from_millis(25)).await;
                    }
                    _ => return Err(failure("remove a container", &trouble)),
                },
            }
        }
        Err(Error::Engine {
            code: ReasonCode::EngineFailed,
            step: "remove a container".into(),
            problem: format!("`{container}` is being removed by another client, and still exists"),
            hint: None,
        })
    }
}

fn open(address: &Address, programs: &HostPrograms) -> Result<(Docker, Option<Arc<Forwarder>>)> {
    let version = bollard::API_DEFAULT_VERSION;
    // Limited by the caller, for the whole of a request.
    const LONG: u64 = 24 * 60 * 60;
    let mut forwarder = None;
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
        Address::Ssh(target) => {
            let started = Forwarder::start(target, programs);
            let started = started.map_err(|err| failed_ssh(address, err.to_string()))?;
            let socket = started.socket();
            forwarder = Some(Arc::new(started));
            Docker::connect_with_unix(&socket.to_string_lossy(), LONG, version)
        }
    };
    let docker = opened.map_err(|trouble| unreachable(address, &trouble))?;
    Ok((docker, forwarder))
}

/// Whether a container is being ended or removed, or has ended while the engine was about to end it. Podman has
/// no status of its own for that.
fn is_ending(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::DockerResponseServerError {
            status_code: 500,
            message,
        } => message.contains("is not running") || message.contains("container state improper"),
        other => status(other) == Some(409),
    }
}

/// Whether a name is in use. Podman has no status of its own for that.
fn is_taken(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::DockerResponseServerError {
            status_code: 500,
            message,
        } => message.contains("name is already in use"),
        other => status(other) == Some(409),
    }
}

pub(crate) fn status(trouble: &Trouble) -> Option<u16> {
    match trouble {
        Trouble::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn failed_ssh(address: &Address, problem: String) -> Error {
    Error::Engine {
        code: ReasonCode::EngineUnreachable,
        step: format!("reach the engine at {address}"),
        problem,
        hint: Some(SSH.into()),
    }
}

fn unreachable(address: &Address, trouble: &Trouble) -> Error {
    Error::Engine {
        code: ReasonCode::EngineUnreachable,
        step: format!("reach the engine at {address}"),
        problem: describe(trouble),
        hint: Some(START.into()),
    }
}

/// The error for a failed request.
pub(crate) fn failure(step: &str, trouble: &Trouble) -> Error {
    let (code, hint) = match trouble {
        Trouble::RequestTimeoutError => (
            ReasonCode::EngineTimeout,
            Some("is the engine overloaded? `docker ps` should respond at once"),
        ),
        Trouble::DockerResponseServerError { .. } | Trouble::DockerStreamError { .. } => {
            (ReasonCode::EngineFailed, None)
        }
        _ => (ReasonCode::EngineUnreachable, Some(START)),
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
            format!("the engine responds with {status_code}: {}", message.trim())
        }
        Trouble::DockerStreamError { error } => format!("the engine says: {error}"),
        Trouble::RequestTimeoutError => "no response in time".into(),
        other => {
            // The innermost error has the reason.
            let mut cause: &dyn std::error::Error = other;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            cause.to_string()
        }
    }
}

impl Facts {
    fn of(info: SystemInfo, product: Product, api: String) -> Self {
        let registered = |(name, runtime): (String, Runtime)| Registered {
            name,
            path: runtime.path.unwrap_or_default(),
            args: runtime.runtime_args.unwrap_or_default(),
        };
        let runtimes = info.runtimes.unwrap_or_default().into_iter();
        let mut runtimes: Vec<Registered> = runtimes.map(registered).collect();
        runtimes.sort_by(|a, b| a.name.cmp(&b.name));
        let default_runtime = info.default_runtime.unwrap_or_default();
        if !product.differences().chooses_runtime {
            runtimes.retain(|registered| registered.name == default_runtime);
        }
        Self {
            product,
            rootless: false,
            version: info.server_version.unwrap_or_default(),
            api,
            architecture: info.architecture.unwrap_or_default(),
            kernel: info.kernel_version.unwrap_or_default(),
            runtimes,
            default_runtime,
            security: info.security_options.unwrap_or_default(),
            cgroup: info
                .cgroup_version
                .map(|version| version.to_string())
                .unwrap_or_default(),
            memory: info.memory_limit == Some(true),
            swap: info.swap_limit == Some(true),
            cpu: info.cpu_cfs_quota == Some(true),
            pids: info.pids_limit == Some(true),
            processors: info
                .ncpu
                .and_then(|count| count.try_into().ok())
                .unwrap_or(0),
            warnings: info.warnings.unwrap_or_default(),
        }
    }

    /// Version 1 of control groups is for root alone, also where an engine says that it has limits.
    fn set_rootless(&mut self) {
        self.rootless = true;
        if self.cgroup == "1" {
            (self.memory, self.swap) = (false, false);
            (self.cpu, self.pids) = (false, false);
        }
    }

    /// Whether containers have control groups of their own that count what is limited.
    pub(crate) fn has_groups(&self) -> bool {
        self.memory && self.pids
    }

    /// Whether the engine names this security option, such as `apparmor`.
    pub(crate) fn has(&self, option: &str) -> bool {
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
    fn a_name_that_is_in_use_is_told_from_other_failures() {
        assert!(is_taken(&answer(409, "Conflict")));
        assert!(is_taken(&answer(500, "x: that name is already in use")));
        assert!(!is_taken(&answer(500, "no space")));
        assert!(!is_taken(&answer(404, "that name is already in use")));
    }

    #[test]
    fn an_ordinary_user_has_no_control_groups_of_version_1() {
        for (cgroup, has) in [("1", false), ("2", true)] {
            let mut facts = Facts {
                cgroup: cgroup.into(),
                memory: true,
                swap: true,
                cpu: true,
                pids: true,
                ..Facts::default()
            };
            facts.set_rootless();
            let limits = [facts.memory, facts.swap, facts.cpu, facts.pids];
            assert_eq!(limits, [has; 4], "version {cgroup}");
        }
    }

    #[test]
    fn only_a_runtime_that_can_be_requested_is_known() {
        let info = || SystemInfo {
            default_runtime: Some("crun".into()),
            runtimes: Some(
                ["crun", "kata"]
                    .map(|name| (name.into(), Runtime::default()))
                    .into(),
            ),
            ..SystemInfo::default()
        };
        let names = |product| {
            let facts = Facts::of(info(), product, String::new());
            let names = facts.runtimes.into_iter().map(|registered| registered.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(Product::Docker), ["crun", "kata"]);
        assert_eq!(names(Product::Podman), ["crun"]);
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
        assert_eq!(
            text,
            "create a container: the engine responds with 500: no space"
        );
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
