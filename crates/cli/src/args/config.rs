//! Flags that describe a sandbox.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brig_config::{Defaults, SetLimits};
use brig_egress::Rule;
use brig_sandbox::config::{MountSpec, OutputOverflow};
use brig_sandbox::{AgentId, Control, Limit, Limits, NetworkConfig, SessionConfig};
use clap::Args;
use clap_complete::ArgValueCompleter;

use super::options::OptionArgs;
use super::{EnvArgs, Overflow, values};
use crate::complete;
use crate::failure::Failure;

#[derive(Args, Debug, Default)]
pub(crate) struct ConfigArgs {
    /// What runs the sandbox: a kind of backend, or KIND:NAME for one of `backends` in the user's
    /// configuration [default: native]
    #[arg(
        long,
        value_name = "KIND[:NAME]",
        add = ArgValueCompleter::new(complete::backends)
    )]
    pub backend: Option<String>,
    /// The id of the agent [default: default, or the name in the agent file]
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::agents))]
    pub agent: Option<AgentId>,

    /// Allow this host: `host`, `*.domain`, an address or a network, each with `:port` or `:*`;
    /// without one, ports 80 and 443. Added to what the policy and `brig sandbox allow` allow
    #[arg(long, value_name = "HOST", help_heading = "Network")]
    pub allow: Vec<Rule>,

    /// End an execution after this time: 500ms, 10s, 2m, 1h or plain seconds [default: 60s; 24h with
    /// -t and for agents]
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Limits")]
    pub timeout: Option<Duration>,
    /// Memory limit for all processes together: 512M, 1G (powers of 1024) [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub memory: Option<u64>,
    /// CPU limit, in CPUs; fractions such as 0.5 are allowed [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = values::cpus, help_heading = "Limits")]
    pub cpu: Option<f64>,
    /// Limit on the number of processes and threads [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub pids: Option<u32>,
    /// Disk limit for everything that is written in the sandbox [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub disk: Option<u64>,
    /// Limit on how much of each of stdout and stderr is kept in the result (--json). Streamed
    /// output is never truncated [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Limits")]
    pub output_max: Option<u64>,
    /// What happens when there is more output than --output-max [default: truncate]
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        hide_default_value = true,
        default_value = "truncate",
        help_heading = "Limits"
    )]
    pub output_overflow: Overflow,

    #[command(flatten)]
    pub env: EnvArgs,
    /// Mount a host file or directory, read-only unless `rw` is given
    #[arg(short = 'v', long, value_name = "SRC:DST[:ro|rw]", value_parser = values::mount,
        help_heading = "Sandbox")]
    pub mount: Vec<MountSpec>,
    /// Mount this host directory as /workspace, writable
    #[arg(short, long, value_name = "DIR", help_heading = "Sandbox")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    pub options: OptionArgs,
    /// Use this root file system instead of the host's system directories
    #[arg(long, value_name = "DIR", help_heading = "Sandbox")]
    pub rootfs: Option<PathBuf>,
    /// Make the root file system writable too, not only /workspace and /tmp. Sessions of the docker
    /// backend keep the changes; otherwise they are lost
    #[arg(long, help_heading = "Sandbox")]
    pub writable_root: bool,
    /// The Python to use: an interpreter or a virtual environment
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub python: Option<PathBuf>,
    /// Do not hide this host file or directory, or anything below it, where it is mounted. By
    /// default, secrets such as .ssh, .npmrc or .docker are hidden in mounts
    #[arg(long, value_name = "PATH", help_heading = "Sandbox")]
    pub show_secret: Vec<PathBuf>,
    /// Accept the risk of running without these controls where this machine cannot enforce them.
    /// Recorded in the result
    #[arg(long, value_name = "CONTROL", value_parser = values::control(), value_delimiter = ',',
        help_heading = "Sandbox")]
    pub waive: Vec<Control>,
    /// Refuse to run where these controls are not enforced. Without it, --memory and --cpu may be
    /// only observed, and a note says so
    #[arg(long, value_name = "CONTROL", value_parser = values::control(), value_delimiter = ',',
        help_heading = "Sandbox")]
    pub require: Vec<Control>,
}

impl ConfigArgs {
    /// The name of the backend: of the flag, of the user's defaults, of an agent file.
    pub(crate) fn backend<'a>(
        &'a self,
        defaults: &'a Defaults,
        agent_file: Option<&'a str>,
    ) -> &'a str {
        let set = self.set_backend(defaults);
        set.or(agent_file).unwrap_or(crate::backend::DEFAULT)
    }

    /// The name of the backend, if the user has set one.
    pub(crate) fn set_backend<'a>(&'a self, defaults: &'a Defaults) -> Option<&'a str> {
        self.backend.as_deref().or(defaults.backend.as_deref())
    }

    pub(crate) fn agent(&self) -> AgentId {
        let default = || "default".parse();
        match &self.agent {
            Some(agent) => agent.clone(),
            None => default().unwrap_or_else(|_| unreachable!("`default` is a name")),
        }
    }

    /// The limits that flags set.
    pub(crate) fn limits(&self) -> SetLimits {
        SetLimits {
            timeout: self.timeout,
            memory: self.memory,
            cpu: self.cpu,
            pids: self.pids,
            disk: self.disk,
            output_max: self.output_max,
        }
    }

    /// The first given flag that has no effect without a sandbox.
    pub(crate) fn sandbox_flag(&self) -> Option<String> {
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
            (
                self.env.flag().is_some(),
                self.env.flag().unwrap_or_default(),
            ),
            (!self.mount.is_empty(), "--mount"),
            (self.workspace.is_some(), "--workspace"),
            (self.rootfs.is_some(), "--rootfs"),
            (self.writable_root, "--writable-root"),
            (self.python.is_some(), "--python"),
            (!self.show_secret.is_empty(), "--show-secret"),
            (!self.waive.is_empty(), "--waive"),
            (!self.require.is_empty(), "--require"),
        ];
        given
            .into_iter()
            .find_map(|(given, flag)| given.then(|| flag.to_owned()))
            .or_else(|| self.options.first())
    }

    /// The config that the flags and, where there are none, the user's defaults set. A limit that is set
    /// is enforced or refused, except that memory and CPU may be observed: ordinary users often have no
    /// control group.
    pub(crate) fn session_config(
        &self,
        defaults: &Defaults,
        backend: &str,
    ) -> Result<SessionConfig, Failure> {
        let limits = Limits::default();
        let set = self.limits().or(&defaults.limits);
        let mut config = SessionConfig {
            limits: Limits {
                timeout: given(set.timeout, limits.timeout),
                memory_bytes: set.memory.map_or(limits.memory_bytes, Limit::best_effort),
                cpus: set.cpu.map_or(limits.cpus, Limit::best_effort),
                processes: given(set.pids, limits.processes),
                disk_bytes: given(set.disk, limits.disk_bytes),
                output_bytes: given(set.output_max, limits.output_bytes),
                output_overflow: match self.output_overflow {
                    Overflow::Truncate => OutputOverflow::Truncate,
                    Overflow::Kill => OutputOverflow::Kill,
                },
            },
            network: NetworkConfig::default(),
            env: self.env.read()?,
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
            options: self.options.with_defaults(&defaults.options, backend),
            show_secrets: self.show_secret.iter().map(|path| absolute(path)).collect(),
            waive: self.waive.iter().copied().collect(),
            ..SessionConfig::default()
        };
        for control in &self.require {
            config.require(*control);
        }
        Ok(config)
    }
}

fn given<T>(flag: Option<T>, default: Limit<T>) -> Limit<T> {
    flag.map_or(default, Limit::asked)
}

/// Sessions are opened from other directories later, so their paths are stored as absolute.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
