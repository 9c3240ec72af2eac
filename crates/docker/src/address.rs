//! Where the engine is: what the environment says, the chosen context, or the usual socket.

use std::path::{Path, PathBuf};

use brig_sandbox::{Error, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// How to reach an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// In the clear: only for engines on this machine.
    Tcp(String),
    Tls {
        host: String,
        /// With `ca.pem`, `cert.pem` and `key.pem`.
        keys: PathBuf,
    },
}

/// What of the caller's environment decides.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub host: Option<String>,
    pub context: Option<String>,
    pub tls_verify: bool,
    pub cert_path: Option<PathBuf>,
    /// `~/.docker`, or what stands in its place.
    pub config: Option<PathBuf>,
    /// Where an engine without root has its socket.
    pub run: Option<PathBuf>,
}

const USUAL: &str = "/var/run/docker.sock";

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
        let rootless = env.run.as_ref().map(|run| run.join("docker.sock"));
        Ok(Self::Unix(match rootless {
            Some(socket) if !Path::new(USUAL).exists() && socket.exists() => socket,
            _ => USUAL.into(),
        }))
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
                    "whoever listens on the way could run anything there; use TLS \
                     (DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH), or a tunnel to this machine",
                )),
            };
        }
        Err(refused(
            host,
            "give unix:///path or tcp://host:port; for ssh, forward the socket: ssh -L",
        ))
    }

    fn of_context(name: &str, config: Option<&Path>) -> Result<Self> {
        let unknown = |problem: &str| Error::Engine {
            code: "engine.unreachable",
            step: format!("look for the context `{name}`"),
            problem: problem.into(),
            hint: Some("docker context ls shows those there are".into()),
        };
        let contexts = config
            .ok_or_else(|| unknown("no home folder"))?
            .join("contexts");
        let id = hex(&Sha256::digest(name.as_bytes()));
        let text = std::fs::read(contexts.join("meta").join(&id).join("meta.json"))
            .map_err(|error| unknown(&error.to_string()))?;
        let context: Context =
            serde_json::from_slice(&text).map_err(|_| unknown("its file makes no sense"))?;
        let endpoint = context
            .endpoints
            .get("docker")
            .ok_or_else(|| unknown("it names no engine"))?;
        if endpoint.skip_tls_verify {
            return Err(unknown("it does not check who answers"));
        }
        let keys = contexts.join("tls").join(&id).join("docker");
        Self::parse(&endpoint.host, keys.is_dir().then_some(keys))
    }

    /// Whether the engine shares this machine's files.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) | Self::Tls { host, .. } => write!(f, "tcp://{host}"),
        }
    }
}

fn current_context(config: &Path) -> Option<String> {
    let text = std::fs::read(config.join("config.json")).ok()?;
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

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(host: &str, problem: &str) -> Error {
    Error::InvalidConfig {
        what: "address of the engine",
        problem: format!("`{host}`: {problem}"),
    }
}

#[cfg(test)]
mod tests {
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
            "ssh://me@engine",
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
