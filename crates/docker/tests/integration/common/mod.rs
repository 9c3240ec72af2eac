//! The engine that `scripts/test` started for these tests.

pub(crate) mod counting;
pub(crate) mod proxy;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{Control, SessionConfig};

/// gVisor with control groups, which the tests' engine has beside one without them.
pub(crate) const GVISOR_GROUPS: &str = "runsc-groups";

/// A user that is not root, whose directories root mounts.
pub(crate) const ORDINARY: u32 = 4001;

/// Or says why there is none.
pub(crate) struct Engine {
    pub socket: PathBuf,
    pub image: String,
}

/// The same config with another value of one option of the backend.
pub(crate) fn with_option(
    mut config: SessionConfig,
    name: &str,
    value: impl Into<String>,
) -> SessionConfig {
    config.options.insert(name.into(), value.into());
    config
}

impl Engine {
    pub(crate) fn find(test: &str) -> Option<Self> {
        Self::of(test, "BRIG_TEST_DOCKER")
    }

    /// The one that this variable names.
    pub(crate) fn of(test: &str, variable: &str) -> Option<Self> {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(socket), Some(image)) = (given(variable), given("BRIG_TEST_IMAGE")) else {
            brig_testing::skip(
                test,
                "no container engine was started for the tests (scripts/test does, as root)",
            );
            return None;
        };
        Some(Self {
            socket: socket.into(),
            image,
        })
    }

    /// The same, if this runtime is to be tried.
    pub(crate) fn with(runtime: &str, test: &str) -> Option<Self> {
        match std::env::var("BRIG_TEST_RUNTIMES") {
            Ok(wanted) if !wanted.split(',').any(|name| name == runtime) => {
                brig_testing::skip(test, "this user tries other runtimes");
                None
            }
            _ => Self::find(test),
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            address: Some(Address::Unix(self.socket.clone())),
            ..Options::default()
        }
    }

    pub(crate) async fn backend(&self) -> Arc<DockerBackend> {
        let backend = DockerBackend::connect(self.options()).await;
        Arc::new(backend.expect("the engine answers"))
    }

    pub(crate) fn config(&self, runtime: &str) -> SessionConfig {
        let mut config = SessionConfig {
            options: [
                ("image".into(), self.image.clone()),
                ("runtime".into(), runtime.into()),
            ]
            .into(),
            ..SessionConfig::default()
        };
        if runtime == "gvisor" {
            // Told to leave control groups alone, as it must be on a machine like the tests'.
            config.waive.insert(Control::Cpu);
        }
        config
    }

    /// Asked of the engine directly, and not through the backend.
    pub(crate) fn curl(&self, method: &str, path: &str) -> Output {
        curl(&self.socket, method, path)
    }

    /// The same, with an object to send, and the object that is answered.
    pub(crate) fn ask(&self, path: &str, body: &serde_json::Value) -> serde_json::Value {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(["-X", "POST", "-H", "Content-Type: application/json", "-d"])
            .arg(body.to_string())
            .arg("--unix-socket")
            .arg(&self.socket)
            .arg(format!("http://engine{path}"))
            .output()
            .expect("curl");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Containers of this process, by their ids.
    pub(crate) fn containers(&self, label: &str) -> Vec<String> {
        let filters = format!("%7B%22label%22%3A%5B%22{label}%22%5D%7D");
        let output = self.curl(
            "GET",
            &format!("/containers/json?all=true&filters={filters}"),
        );
        let text = String::from_utf8(output.stdout).expect("text");
        let parsed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let all = parsed.as_array().expect("a list").iter();
        all.map(|one| one["Id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

pub(crate) fn curl(socket: &Path, method: &str, path: &str) -> Output {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "-X",
            method,
            "--unix-socket",
        ])
        .arg(socket)
        .arg(format!("http://engine{path}"))
        .output();
    output.expect("curl")
}
