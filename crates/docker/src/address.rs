//! Where the engine is: what the environment says, the chosen context, or the usual socket.

use std::path::{Path, PathBuf};

use brig_layers::hex;
use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::ssh::SshTarget;

/// What is read of the engine's own settings.
const LARGEST: u64 = 1 << 20;

/// How to reach an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A local socket.
    Unix(PathBuf),
    /// In the clear: only for engines on this machine.
    Tcp(String),
    /// Encrypted, with a client certificate.
    Tls {
        /// Host and port.
        host: String,
        /// With `ca.pem`, `cert.pem` and `key.pem`.
        keys: PathBuf,
    },
    /// Through `ssh`, with `docker` on the other side.
    Ssh(SshTarget),
}

/// What of the caller's environment decides.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `DOCKER_HOST`.
    pub host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub context: Option<String>,
    /// `DOCKER_TLS_VERIFY`.
    pub tls_verify: bool,
    /// `DOCKER_CERT_PATH`.
    pub cert_path: Option<PathBuf>,
    /// `~/.docker`, or what stands in its place.
    pub config: Option<PathBuf>,
    /// Where an engine without root has its socket.
    pub run: Option<PathBuf>,
}

const USUAL: &str = "/var/run/docker.sock";
const PODMAN: &str = "/run/podman/podman.sock";

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(rename = "Endpoints")]
    endpoints: std::collections::HashMap<String, Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Host")]
    host: String,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = etcetera::home_dir().ok();
        Self {
            host: given("DOCKER_HOST"),
            context: given("DOCKER_CONTEXT"),
            tls_verify: given("DOCKER_TLS_VERIFY").is_some(),
            cert_path: given("DOCKER_CERT_PATH").map(PathBuf::from),
            config: given("DOCKER_CONFIG")
                .map(PathBuf::from)
                .or_else(|| home.map(|home| home.join(".docker"))),
            run: given("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }
}

impl Address {
    /// In the order in which `docker` itself looks.
    pub fn find(env: &Environment) -> Result<Self> {
        if let Some(host) = &env.host {
            let keys = env
                .tls_verify
                .then(|| env.cert_path.clone().or_else(|| env.config.clone()));
            return match keys {
                Some(None) => Err(refused(host, "DOCKER_TLS_VERIFY needs DOCKER_CERT_PATH")),
                keys => Self::parse(host, keys.flatten()),
            };
        }
        let context = env
            .context
            .clone()
            .or_else(|| current_context(env.config.as_deref()?));
        if let Some(name) = context.filter(|name| name != "default") {
            return Self::of_context(&name, env.config.as_deref());
        }
        Ok(Self::Unix(choose(sockets(env.run.as_deref()))))
    }

    /// An address as `docker` takes it.
    pub fn parse(host: &str, keys: Option<PathBuf>) -> Result<Self> {
        if let Some(path) = host.strip_prefix("unix://") {
            return Ok(Self::Unix(path.into()));
        }
        if let Some(host) = host
            .strip_prefix("tcp://")
            .or(host.strip_prefix("https://"))
        {
            let host = host.trim_end_matches('/');
            return match keys {
                Some(keys) => Ok(Self::Tls {
                    host: host.into(),
                    keys,
                }),
                None if is_loopback(host) => Ok(Self::Tcp(host.into())),
                None => Err(refused(
                    host,
                    "an attacker on the network could run anything there; use TLS \
                     (DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH), or a tunnel to this machine",
                )),
            };
        }
        if let Some(target) = host.strip_prefix("ssh://") {
            return match SshTarget::parse(target) {
                Ok(target) => Ok(Self::Ssh(target)),
                Err(problem) => Err(refused(host, problem)),
            };
        }
        Err(refused(
            host,
            "give unix:///path, tcp://host:port or ssh://user@host",
        ))
    }

    fn of_context(name: &str, config: Option<&Path>) -> Result<Self> {
        let unknown = |problem: &str| Error::Engine {
            code: ReasonCode::EngineUnreachable,
            step: format!("look for the context `{name}`"),
            problem: problem.into(),
            hint: Some("run `docker context ls` to list them".into()),
        };
        let contexts = config
            .ok_or_else(|| unknown("no home directory"))?
            .join("contexts");
        let id = hex(&Sha256::digest(name.as_bytes()));
        let text = brig_input::read(contexts.join("meta").join(&id).join("meta.json"), LARGEST)
            .map_err(|error| unknown(&error.to_string()))?;
        let context: Context =
            serde_json::from_slice(&text).map_err(|_| unknown("its file is invalid"))?;
        let endpoint = context
            .endpoints
            .get("docker")
            .ok_or_else(|| unknown("it does not name an engine"))?;
        if endpoint.skip_tls_verify {
            return Err(unknown("it does not verify the server's certificate"));
        }
        let keys = contexts.join("tls").join(&id).join("docker");
        Self::parse(&endpoint.host, keys.is_dir().then_some(keys))
    }

    /// Whether it is a socket of this machine, which may be forwarded to another one.
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) | Self::Tls { host, .. } => write!(f, "tcp://{host}"),
            Self::Ssh(target) => write!(f, "ssh://{target}"),
        }
    }
}

/// Where engines usually have their sockets: Docker, rootless Docker, rootless Podman, Podman.
fn sockets(run: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let of_user = ["docker.sock", "podman/podman.sock"];
    let of_user = of_user
        .into_iter()
        .filter_map(move |name| Some(run?.join(name)));
    let all = std::iter::once(USUAL.into()).chain(of_user);
    all.chain(std::iter::once(PODMAN.into()))
}

/// The first that somebody listens at. Otherwise the first that is there: its error says what is wrong.
fn choose(sockets: impl Iterator<Item = PathBuf>) -> PathBuf {
    let mut there = sockets.filter(|socket| socket.exists()).peekable();
    let first = there.peek().cloned();
    there
        .find(|socket| is_served(socket))
        .or(first)
        .unwrap_or_else(|| USUAL.into())
}

/// Without waiting: one whose queue is full is served, too.
fn is_served(socket: &Path) -> bool {
    use rustix::io::Errno;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = SocketAddrUnix::new(socket).and_then(|address| {
        let own = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&own, &address)
    });
    matches!(connected, Ok(()) | Err(Errno::AGAIN))
}

fn current_context(config: &Path) -> Option<String> {
    let text = brig_input::read(config.join("config.json"), LARGEST).ok()?;
    serde_json::from_slice::<Config>(&text)
        .ok()?
        .current_context
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

fn refused(host: &str, problem: &str) -> Error {
    Error::InvalidConfig {
        what: "address of the engine",
        problem: format!("`{host}`: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn find(env: Environment) -> Address {
        Address::find(&env).expect("an address")
    }

    #[test]
    fn the_environment_comes_first() {
        let env = Environment {
            host: Some("unix:///run/a.sock".into()),
            context: Some("other".into()),
            ..Environment::default()
        };
        assert_eq!(find(env), Address::Unix("/run/a.sock".into()));
    }

    #[test]
    fn podman_is_found_where_docker_is_not() {
        let run = Path::new("/run/user/1000");
        let all: Vec<PathBuf> = sockets(Some(run)).collect();
        let expected = [
            "/var/run/docker.sock",
            "/run/user/1000/docker.sock",
            "/run/user/1000/podman/podman.sock",
            "/run/podman/podman.sock",
        ];
        assert_eq!(all, expected.map(PathBuf::from));
        assert_eq!(sockets(None).count(), 2);
        let run = tempfile::tempdir().expect("a directory");
        let socket = run.path().join("podman/podman.sock");
        std::fs::create_dir(run.path().join("podman")).expect("a directory");
        let _served = UnixListener::bind(&socket).expect("a socket");
        let found = find(Environment {
            run: Some(run.path().into()),
            ..Environment::default()
        });
        let docker = is_served(Path::new(USUAL));
        assert_eq!(found == Address::Unix(socket), !docker, "{found:?}");
    }

    #[test]
    fn a_socket_that_nobody_serves_is_passed_over() {
        let run = tempfile::tempdir().expect("a directory");
        let [dead, file, live] = ["dead", "file", "live"].map(|name| run.path().join(name));
        drop(UnixListener::bind(&dead).expect("a socket"));
        std::fs::write(&file, "").expect("a file");
        let all = || [dead.clone(), file.clone(), live.clone()].into_iter();
        assert!(dead.exists(), "control");
        assert_eq!(choose(all()), dead, "its error is shown");
        let listener = UnixListener::bind(&live).expect("a socket");
        assert_eq!(choose(all()), live);
        // Until its queue is full.
        listener.set_nonblocking(true).expect("a socket");
        assert!((0..5).all(|_| is_served(&live)));
        drop(listener);
        assert_eq!(choose(all()), dead);
        assert_eq!(choose(std::iter::empty()), Path::new(USUAL));
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for host in [
            "tcp://127.0.0.1:2375",
            "tcp://localhost:2375",
            "tcp://[::1]:2375",
        ] {
            assert!(
                matches!(Address::parse(host, None), Ok(Address::Tcp(_))),
                "{host}"
            );
        }
        for host in [
            "tcp://10.0.0.1:2375",
            "tcp://engine:2375",
            "tcp://127.0.0.1.example:2375",
            "ssh://-oProxyCommand=x",
            "fd://",
        ] {
            assert!(Address::parse(host, None).is_err(), "{host}");
        }
        let keys = PathBuf::from("/keys");
        let tls = Address::parse("tcp://engine:2376", Some(keys.clone())).expect("TLS");
        assert_eq!(
            tls,
            Address::Tls {
                host: "engine:2376".into(),
                keys
            }
        );
    }

    #[test]
    fn a_context_is_found_by_its_name() {
        let folder = tempfile::tempdir().expect("folder");
        let id = hex(&Sha256::digest(b"far"));
        let meta = folder.path().join("contexts/meta").join(&id);
        let tls = folder.path().join("contexts/tls").join(&id).join("docker");
        std::fs::create_dir_all(&meta).expect("meta");
        std::fs::create_dir_all(&tls).expect("tls");
        let text = r#"{"Name":"far","Metadata":{},"Endpoints":{"docker":{"Host":"tcp://engine:2376","SkipTLSVerify":false}}}"#;
        std::fs::write(meta.join("meta.json"), text).expect("meta.json");
        std::fs::write(
            folder.path().join("config.json"),
            r#"{"currentContext":"far"}"#,
        )
        .expect("config");
        let env = Environment {
            config: Some(folder.path().into()),
            ..Environment::default()
        };
        let far = Address::Tls {
            host: "engine:2376".into(),
            keys: tls,
        };
        assert_eq!(find(env.clone()), far);
        assert_eq!(
            find(Environment {
                context: Some("far".into()),
                ..env.clone()
            }),
            far
        );
        let none = Environment {
            context: Some("none".into()),
            ..env.clone()
        };
        assert_eq!(
            Address::find(&none).expect_err("unknown").code(),
            "engine.unreachable"
        );
        let default = Environment {
            context: Some("default".into()),
            ..env
        };
        assert!(matches!(find(default), Address::Unix(_)));
        std::fs::write(meta.join("meta.json"), text.replace("false", "true")).expect("meta.json");
        let env = Environment {
            config: Some(folder.path().into()),
            ..Environment::default()
        };
        assert!(
            Address::find(&env).is_err(),
            "one that does not check is refused"
        );
    }
}
