//! `brig session inspect`.

use std::fmt::Write;

use brig_sandbox::{NetworkConfig, SessionConfig, SessionDetails};
use serde_json::json;

use super::{checkpoint, list};
use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::{assemble, doctor, escape, json, units, user, write_out};

pub(crate) fn run(args: &InspectArgs) -> Result<u8, Failure> {
    let name = &args.session;
    let (sessions, agent) = assemble::find_session(name)?;
    let details = sessions.inspect(&agent, &name.id)?;
    let user = user::load(&user::store()?)?;
    let mut network = details.config.network.clone();
    network.layers.push(sessions.network(&agent, &name.id)?);
    network.replace(brig_config::user_layer(&user));
    checkpoint::warn(&details.unreadable);
    if args.json {
        let mut object = list::object(&details.info);
        object["config"] = json!(details.config);
        let names = details.config.env.iter().map(|(name, _)| name.as_str());
        object["config"]["env"] = names.collect();
        object["network"] = json!(network);
        object["enforcement"] = json!(details.enforcement);
        object["checkpoints"] = json!(details.checkpoints);
        object["unreadable"] = json!(details.unreadable);
        json::print(&object);
        return Ok(0);
    }
    Ok(write_out(text(&details, &network).as_bytes()))
}

fn text(details: &SessionDetails, network: &NetworkConfig) -> String {
    let info = &details.info;
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:12}{}", escape::line(&value));
    };
    line("session", info.id.to_string());
    line("agent", info.agent.to_string());
    line("status", info.status.name().into());
    line("backend", info.backend.clone());
    line("created", list::time(info.created));
    line("size", units::size(info.bytes));
    for (name, value) in describe(&details.config) {
        line(name, value);
    }
    for value in hosts(network) {
        line("network", value);
    }
    out.push('\n');
    out.push_str(&doctor::lines(&details.enforcement));
    if !details.checkpoints.is_empty() {
        out.push('\n');
        out.push_str(&checkpoint::lines(&details.checkpoints));
    }
    out
}

/// What it may reach, and which layer says so.
fn hosts(network: &NetworkConfig) -> Vec<String> {
    if !network.is_on() {
        return vec!["off".into()];
    }
    let open = network
        .open
        .then(|| "policy allows every public host".to_owned());
    open.into_iter()
        .chain(brig_config::all_rules(&network.layers))
        .collect()
}

/// The config, in the form of the flags. Values of variables are left out: they may be secrets.
fn describe(config: &SessionConfig) -> Vec<(&str, String)> {
    let limits = &config.limits;
    let timeout = u64::try_from(limits.timeout.value.as_millis()).unwrap_or(u64::MAX);
    let mut lines = vec![
        ("timeout", units::duration(timeout)),
        ("memory", units::size(limits.memory_bytes.value)),
        ("cpu", limits.cpus.value.to_string()),
        ("pids", limits.processes.value.to_string()),
        ("disk", units::size(limits.disk_bytes.value)),
        ("output-max", units::size(limits.output_bytes.value)),
    ];
    if let Some(policies) = config.policies() {
        let names: Vec<&str> = (policies.documents().iter())
            .map(|document| document.name())
            .collect();
        let names = names.join(", ");
        lines.push(("policy", format!("{names} {}", policies.digest())));
    }
    for (name, path) in [
        ("workspace", &config.workspace),
        ("rootfs", &config.rootfs),
        ("python", &config.python),
    ] {
        lines.extend(path.iter().map(|path| (name, path.display().to_string())));
    }
    for (name, value) in &config.options {
        lines.push((name.as_str(), value.clone()));
    }
    for mount in &config.mounts {
        let (source, target) = (mount.source.display(), mount.target.display());
        let mode = if mount.writable { "rw" } else { "ro" };
        lines.push(("mount", format!("{source}:{target}:{mode}")));
    }
    lines.extend(config.env.iter().map(|(key, _)| ("env", key.clone())));
    lines.extend(
        config
            .waive
            .iter()
            .map(|control| ("waive", control.name().into())),
    );
    lines
}
