//! What an agent file adds to the config of its run: mounts, variables and limits. What only the user may
//! decide is refused unless the user trusts the file, and shown.

use std::path::PathBuf;

use brig_config::{BackendSetBy, Decided, Defaults, Disk, Run, SetLimits, Store};
use brig_sandbox::config::MountSpec;
use brig_sandbox::{Limits, SessionConfig};

use crate::args::AgentRunArgs;
use crate::drive::INTERACTIVE_TIMEOUT;
use crate::failure::{self, Failure};
use crate::user;

/// The user's defaults with the limits of the agent file, if that may set them.
pub(crate) fn defaults(args: &AgentRunArgs, run: &Run, store: &Store) -> Result<Defaults, Failure> {
    let own = run.user.defaults();
    let variables: Vec<String> = args
        .config
        .env
        .read()?
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let targets: Vec<PathBuf> = (args.config.mount.iter())
        .map(|mount| mount.target.clone())
        .collect();
    let decided = Decided {
        targets: &targets,
        variables: &variables,
        limits: &own.limits.or(&built_in()),
        flags: &args.config.limits(),
        backend: match args.config.set_backend(own) {
            Some(backend) => (BackendSetBy::User, backend),
            None => (BackendSetBy::Default, crate::backend::DEFAULT),
        },
    };
    run.check_consent(&Disk, store, decided)
        .map_err(user::failed)?;
    Ok(Defaults {
        limits: run.agent.limits.or(&own.limits),
        ..own.clone()
    })
}

/// What applies to an agent if nobody sets anything.
fn built_in() -> SetLimits {
    let limits = Limits::default();
    SetLimits {
        timeout: Some(INTERACTIVE_TIMEOUT),
        memory: Some(limits.memory_bytes.value),
        cpu: Some(limits.cpus.value),
        pids: Some(limits.processes.value),
        disk: Some(limits.disk_bytes.value),
        output_max: Some(limits.output_bytes.value),
    }
}

/// Adds mounts and variables, unless flags say otherwise about the same place or name, and shows them.
/// Called after [`defaults`] has checked them.
pub(crate) fn add(run: &Run, config: &mut SessionConfig) -> Result<(), Failure> {
    for mount in run.mounts() {
        if config.mounts.iter().any(|own| own.target == mount.target) {
            continue;
        }
        failure::shown(&format!("{mount}, for the agent file"));
        config.mounts.push(MountSpec {
            source: mount.source,
            target: mount.target,
            writable: mount.writable,
        });
    }
    let has = |env: &[(String, String)], name: &str| env.iter().any(|(own, _)| own == name);
    for (name, value) in &run.agent.env {
        if !has(&config.env, name) {
            config.env.push((name.clone(), value.clone()));
        }
    }
    for name in &run.agent.secrets {
        if has(&config.env, name) {
            continue;
        }
        let value = std::env::var(name).map_err(|_| {
            Failure::usage(format!(
                "the agent needs the variable `{name}`, which is not set in your environment"
            ))
            .with_hint(format!("set it, or give it with --env {name}=VALUE"))
        })?;
        failure::shown(&format!("`{name}` of your environment, for the agent file"));
        config.env.push((name.clone(), value));
    }
    Ok(())
}
