//! What a caller asks of a sandbox: JSON from the package, checked here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brig_egress::{Layer, LayerKind, Rule};
use brig_sandbox::config::{MountSpec, OutputOverflow};
use brig_sandbox::{Control, Error, Limit, SessionConfig};
use serde::Deserialize;

use crate::error::invalid;

/// Where the sandbox runs, and what is kept of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    pub(crate) agent: String,
    pub(crate) backend: String,
    /// Settings of backends, by their names.
    pub(crate) settings: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) audit: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    timeout: Option<f64>,
    memory: Option<u64>,
    cpus: Option<f64>,
    processes: Option<u32>,
    disk: Option<u64>,
    output: Option<u64>,
    kill_on_output: bool,
    env: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    workspace: Option<PathBuf>,
    rootfs: Option<PathBuf>,
    writable_root: bool,
    python: Option<PathBuf>,
    options: BTreeMap<String, String>,
    network: Vec<String>,
    block: Vec<String>,
    waive: Vec<String>,
    show_secrets: Vec<PathBuf>,
    observe_commands: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mount {
    source: PathBuf,
    target: PathBuf,
    writable: bool,
}

pub(crate) fn setup(text: &str) -> Result<Setup, Error> {
    serde_json::from_str(text).map_err(|error| invalid("config", error))
}

pub(crate) fn session_config(text: &str) -> Result<SessionConfig, Error> {
    let given: Config = serde_json::from_str(text).map_err(|error| invalid("config", error))?;
    let mut config = SessionConfig::default();
    let limits = &mut config.limits;
    if let Some(seconds) = given.timeout {
        limits.timeout = Limit::asked(seconds_of(seconds)?);
    }
    ask(&mut limits.memory_bytes, given.memory);
    ask(&mut limits.cpus, given.cpus);
    ask(&mut limits.processes, given.processes);
    ask(&mut limits.disk_bytes, given.disk);
    ask(&mut limits.output_bytes, given.output);
    if given.kill_on_output {
        limits.output_overflow = OutputOverflow::Kill;
    }
    config.env = given.env.into_iter().collect();
    config.mounts = (given.mounts.into_iter())
        .map(|mount| MountSpec {
            source: mount.source,
            target: mount.target,
            writable: mount.writable,
        })
        .collect();
    config.workspace = given.workspace;
    config.rootfs = given.rootfs;
    config.read_only_root = !given.writable_root;
    config.python = given.python;
    config.options = given.options;
    config.show_secrets = given.show_secrets;
    config.observe_commands = given.observe_commands;
    if !given.network.is_empty() || !given.block.is_empty() {
        let layer = Layer::new(LayerKind::Run)
            .allow(rules(&given.network)?)
            .deny(rules(&given.block)?);
        config.network.layers.push(layer);
    }
    for name in &given.waive {
        let control = Control::from_name(name);
        let unknown = || {
            invalid(
                "waive",
                format!("no control is named `{}`", name.escape_debug()),
            )
        };
        config.waive.insert(control.ok_or_else(unknown)?);
    }
    Ok(config)
}

pub(crate) fn seconds_of(seconds: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds).map_err(|error| invalid("timeout", error))
}

fn ask<T>(limit: &mut Limit<T>, given: Option<T>) {
    if let Some(value) = given {
        *limit = Limit::asked(value);
    }
}

fn rules(texts: &[String]) -> Result<Vec<Rule>, Error> {
    let rule = |text: &String| text.parse().map_err(|error| invalid("network", error));
    texts.iter().map(rule).collect()
}
