//! `brig agent trust`: the consent of the user to what an agent file must not decide alone.

use std::path::{Path, PathBuf};

use brig_config::{Disk, Run, Store, resolve};
use serde_json::json;

use crate::args::AgentTrustArgs;
use crate::failure::{self, Failure};
use crate::policy::load;
use crate::user_change::UserChange;
use crate::{json, table, user, write_out};

/// What the records of a change name.
const LAYER: &str = "trusted-agents";

pub(crate) fn run(args: &AgentTrustArgs) -> u8 {
    let done = match &args.reference {
        None => list(args.json),
        Some(reference) if args.remove => remove(reference, args.json),
        Some(reference) => add(reference, args.json),
    };
    done.unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

fn add(reference: &str, as_json: bool) -> Result<u8, Failure> {
    let run = trust(&user::store()?, reference)?;
    let file = &run.identity;
    if as_json {
        json::print(&json!({ "path": file.path, "digest": file.digest, "trusted": true }));
        return Ok(0);
    }
    if run.agent.sandbox == Some(false) {
        failure::warning("this agent may now run without a sandbox, with your own permissions");
    }
    if let Some(backend) = run.agent.backend.as_deref()
        && backend != crate::backend::DEFAULT
    {
        failure::warning(&format!(
            "this agent may now choose the backend `{}`",
            crate::escape::line(backend)
        ));
    }
    for mount in run.mounts() {
        failure::warning(&format!("this agent may now see {mount}"));
    }
    for asked in run.asked_by_policy() {
        failure::warning(&format!("this agent may now {asked}"));
    }
    for name in &run.agent.secrets {
        failure::warning(&format!(
            "this agent may now take `{name}` from your environment"
        ));
    }
    for asked in run.asked_by_tools() {
        failure::warning(&format!("trusted: this agent {asked}"));
    }
    if !run.agent.limits.is_empty() {
        failure::warning("this agent may now set its limits, higher ones too");
    }
    for rule in run
        .agent
        .network_allowlist
        .iter()
        .filter(|rule| rule.opens().is_some())
    {
        failure::warning(&format!("this agent may now reach `{rule}`"));
    }
    let line = format!(
        "trusted in its current version: {}\n",
        crate::escape::line(&file.path.to_string_lossy())
    );
    Ok(write_out(line.as_bytes()))
}

/// Adds an agent file with its current contents to the list.
pub(super) fn trust(store: &Store, reference: &str) -> Result<Run, Failure> {
    // Resolved as for a run in a sandbox: an invalid file is not trusted.
    let run = resolve(&Disk, store, reference, Some(true)).map_err(user::failed)?;
    load::show(&run.warnings);
    let file = &run.identity;
    let entry = format!("{} {}", file.path.display(), file.digest);
    let change = UserChange::of(LAYER)?;
    change.done(store.trust(file, || change.announce(vec![entry], Vec::new())))?;
    Ok(run)
}

fn remove(reference: &str, as_json: bool) -> Result<u8, Failure> {
    let store = user::store()?;
    let path = agent_path(&store, reference)?;
    let entry = path.display().to_string();
    let change = UserChange::of(LAYER)?;
    let removed =
        change.done(store.distrust(&path, || change.announce(Vec::new(), vec![entry])))?;
    if as_json {
        json::print(&json!({ "path": path, "trusted": false }));
    } else if !removed {
        failure::note(&format!("`{}` was not trusted", path.display()));
    }
    Ok(0)
}

/// The file may have been removed, so the path need not exist.
fn agent_path(store: &Store, reference: &str) -> Result<PathBuf, Failure> {
    let config = user::load(store)?;
    let path = (config.aliases().get(reference))
        .map_or_else(|| PathBuf::from(reference), |alias| alias.path.clone());
    let whole = path.canonicalize().or_else(|_| std::path::absolute(&path));
    whole.map_err(|error| Failure::file(&Path::new(reference).to_string_lossy(), &error))
}

fn list(as_json: bool) -> Result<u8, Failure> {
    let list = user::store()?.trusted(&Disk).map_err(user::failed)?;
    if as_json {
        let files: Vec<_> = (list.iter())
            .map(|(path, digest)| json!({ "path": path, "digest": digest }))
            .collect();
        json::print(&json!({ "trusted": files }));
        return Ok(0);
    }
    if list.is_empty() {
        failure::note("no agent file is trusted");
        return Ok(0);
    }
    let rows: Vec<[String; 2]> = (list.into_iter())
        .map(|(path, digest)| [digest.chars().take(19).collect(), path])
        .collect();
    Ok(write_out(
        table::text(["DIGEST", "AGENT"], &rows).as_bytes(),
    ))
}
