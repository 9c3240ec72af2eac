//! Flags that describe a sandbox.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_egress::Rule;
use brig_sandbox::config::{MountSpec, OutputOverflow};
use brig_sandbox::{AgentId, Control, Limit, Limits, NetworkConfig, SessionConfig};
use clap::Args;

use super::Overflow;
use super::values;

#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// The isolation technology [default: native]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Who asks [default: default, or the name in the agent file]
    #[arg(long, value_name = "ID")]
    pub agent: Option<AgentId>,

    /// Let the program reach this host too: `host`, `*.domain`, an address or a network, each with
    /// `:port` or `:*`; without one, ports 80 and 443. Adds to the policy and to `brig sandbox allow`
    #[arg(long, value_name = "HOST", help_heading = "Network")]
    pub allow: Vec<Rule>,

    /// End an execution after this time: 500ms, 10s, 2m, 1h or plain seconds [default: 60s, none
    /// with -t]
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Limits")]
    pub timeout: Option<Duration>,
    /// Memory for all processes together: 512M, 1G (powers of 1024) [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub memory: Option<u64>,
    /// Processors, also in parts: 0.5 [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = values::cpus, help_heading = "Limits")]
    pub cpu: Option<f64>,
    /// Processes and threads at a time [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub pids: Option<u32>,
    /// Space for everything that is written inside [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub disk: Option<u64>,
    /// How much of each of stdout and stderr is kept [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub output_max: Option<u64>,
    /// What happens when there is more output than that [default: truncate]
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        hide_default_value = true,
        default_value = "truncate",
        help_heading = "Limits"
    )]
    pub output_overflow: Overflow,

    /// Set a variable inside; nothing of Brig's own environment is passed on
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::variable,
        help_heading = "Sandbox")]
    pub env: Vec<(String, String)>,
    /// Show a file or folder of the host inside, read-only unless `rw` is given
    #[arg(short = 'v', long, value_name = "SRC:DST[:ro|rw]", value_parser = values::mount,
        help_heading = "Sandbox")]
    pub mount: Vec<MountSpec>,
    /// Use this folder of the host as /workspace, writable
    #[arg(short, long, value_name = "DIR", help_heading = "Sandbox")]
    pub workspace: Option<PathBuf>,
    /// The image to start from [default: the first usual Python image that the engine has]
    #[arg(long, value_name = "NAME", help_heading = "Docker")]
    pub image: Option<String>,
    /// What runs the container: runc, crun, gvisor, kata, another that the engine knows, or auto,
    /// the strongest there is [default: auto]
    #[arg(long, value_name = "NAME", help_heading = "Docker")]
    pub runtime: Option<String>,
    /// Use this root file system in place of the host's system folders
    #[arg(long, value_name = "DIR", help_heading = "Sandbox")]
    pub rootfs: Option<PathBuf>,
    /// Let the program write outside of /workspace and /tmp too; sessions in containers keep it, elsewhere it is lost
    #[arg(long, help_heading = "Sandbox")]
    pub writable_root: bool,
    /// The Python to use: an interpreter or a virtual environment
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub python: Option<PathBuf>,
    /// Give up controls by name where this machine cannot hold them; recorded in the result
    #[arg(long, value_name = "CONTROL", value_parser = values::control(), value_delimiter = ',',
        help_heading = "Sandbox")]
    pub waive: Vec<Control>,
}

impl ConfigArgs {
    pub fn backend(&self) -> &str {
        self.backend.as_deref().unwrap_or("native")
    }

    pub fn agent(&self) -> AgentId {
        let default = || "default".parse();
        match &self.agent {
            Some(agent) => agent.clone(),
            None => default().unwrap_or_else(|_| unreachable!("`default` is a name")),
        }
    }

    /// The first flag that means nothing without a sandbox.
    pub fn sandbox_flag(&self) -> Option<&'static str> {
        let given = [
            (self.backend.is_some(), "--backend"),
            (!self.allow.is_empty(), "--allow"),
            (self.timeout.is_some(), "--timeout"),
            (self.memory.is_some(), "--memory"),
            (self.cpu.is_some(), "--cpu"),
            (self.pids.is_some(), "--pids"),
            (self.disk.is_some(), "--disk"),
            (self.output_max.is_some(), "--output-max"),
            (
                !matches!(self.output_overflow, Overflow::Truncate),
                "--output-overflow",
            ),
            (!self.env.is_empty(), "--env"),
            (!self.mount.is_empty(), "--mount"),
            (self.workspace.is_some(), "--workspace"),
            (self.image.is_some(), "--image"),
            (self.runtime.is_some(), "--runtime"),
            (self.rootfs.is_some(), "--rootfs"),
            (self.writable_root, "--writable-root"),
            (self.python.is_some(), "--python"),
            (!self.waive.is_empty(), "--waive"),
        ];
        given
            .into_iter()
            .find_map(|(given, flag)| given.then_some(flag))
    }

    /// The config asked for. A limit given as a flag is held or refused.
    pub fn session_config(&self) -> SessionConfig {
        let limits = Limits::default();
        SessionConfig {
            limits: Limits {
                timeout: given(self.timeout, limits.timeout),
                memory_bytes: given(self.memory, limits.memory_bytes),
                cpus: given(self.cpu, limits.cpus),
                processes: given(self.pids, limits.processes),
                disk_bytes: given(self.disk, limits.disk_bytes),
                output_bytes: given(self.output_max, limits.output_bytes),
                output_overflow: match self.output_overflow {
                    Overflow::Truncate => OutputOverflow::Truncate,
                    Overflow::Kill => OutputOverflow::Kill,
                },
            },
            network: NetworkConfig::default(),
            env: self.env.clone(),
            mounts: self
                .mount
                .iter()
                .map(|mount| MountSpec {
                    source: absolute(&mount.source),
                    ..mount.clone()
                })
                .collect(),
            workspace: self.workspace.as_deref().map(absolute),
            rootfs: self.rootfs.as_deref().map(absolute),
            read_only_root: !self.writable_root,
            python: self.python.as_deref().map(absolute),
            image: self.image.clone(),
            runtime: self.runtime.clone(),
            needs: BTreeSet::new(),
            waive: self.waive.iter().copied().collect(),
            observe_commands: false,
            policies: None,
        }
    }
}

fn given<T>(flag: Option<T>, default: Limit<T>) -> Limit<T> {
    flag.map_or(default, Limit::asked)
}

/// A session outlives the folder it was created from, so its paths are kept absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
