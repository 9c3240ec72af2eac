use std::fmt::Write;

use brig_sandbox::{SessionConfig, SessionDetails};
use serde_json::json;

use super::{checkpoint, find, list};
use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::{doctor, escape, json, units, write_out};

pub async fn run(args: &InspectArgs) -> Result<u8, Failure> {
    let details = find::inspect(&args.session).await?;
    if args.json {
        let mut object = list::object(&details.info);
        object["config"] = json!(details.config);
        object["enforcement"] = json!(details.enforcement);
        object["checkpoints"] = json!(details.checkpoints);
        json::print(&object);
        return Ok(0);
    }
    Ok(write_out(text(&details).as_bytes()))
}

fn text(details: &SessionDetails) -> String {
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
    out.push('\n');
    out.push_str(&doctor::lines(&details.enforcement));
    if !details.checkpoints.is_empty() {
        out.push('\n');
        out.push_str(&checkpoint::lines(&details.checkpoints));
    }
    out
}

/// The config, as it would be typed. Values of variables may be secrets.
fn describe(config: &SessionConfig) -> Vec<(&'static str, String)> {
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
    if let Some(policies) = &config.policies {
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
    for (name, value) in [("image", &config.image), ("runtime", &config.runtime)] {
        lines.extend(value.iter().map(|value| (name, value.clone())));
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
