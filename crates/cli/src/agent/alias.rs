//! `brig alias`.

use std::path::{Path, PathBuf};

use brig_config::{Alias, check_alias};
use serde_json::json;

use super::trust;
use crate::args::AliasCommand;
use crate::failure::{self, Failure};
use crate::{json, table, user, write_out};

pub(crate) fn run(command: &AliasCommand) -> u8 {
    let (result, as_json) = match command {
        AliasCommand::Add {
            name,
            reference,
            sandbox,
        } => (add(name, reference, *sandbox), false),
        AliasCommand::Ls { json } => (list(*json), *json),
        AliasCommand::Rm { name } => (remove(name), false),
    };
    result.unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}

fn add(name: &str, reference: &str, sandbox: Option<bool>) -> Result<u8, Failure> {
    check_alias(name).map_err(user::failed)?;
    let store = user::store_to_change()?;
    let known = user::load(&store)?;
    let path = match known.aliases().get(reference) {
        Some(other) => other.path.clone(),
        None => existing(Path::new(reference))?,
    };
    let alias = Alias { path, sandbox };
    store.set_alias(name, &alias).map_err(user::failed)?;
    if sandbox == Some(false) {
        // Trust the current contents: a changed file is refused until it is trusted again.
        trust::trust(&store, name)?;
        failure::warning(&format!(
            "`{name}` runs without a sandbox, as long as its agent file is not changed"
        ));
    }
    let line = format!("{name}: {}\n", alias.path.display());
    Ok(write_out(line.as_bytes()))
}

/// An alias works in every directory, so its path is stored as absolute.
fn existing(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::file(&path.display().to_string(), &error);
    std::fs::metadata(path).map_err(failed)?;
    std::path::absolute(path).map_err(failed)
}

fn list(as_json: bool) -> Result<u8, Failure> {
    let config = user::load(&user::store()?)?;
    if as_json {
        let aliases: Vec<_> = (config.aliases().iter())
            .map(|(name, alias)| {
                json!({ "name": name, "path": alias.path, "sandbox": alias.sandbox })
            })
            .collect();
        json::print(&json!({ "aliases": aliases }));
        return Ok(0);
    }
    if config.aliases().is_empty() {
        failure::note("no aliases");
        failure::hint("brig alias add NAME PATH");
        return Ok(0);
    }
    let rows: Vec<[String; 3]> = (config.aliases().iter())
        .map(|(name, alias)| {
            let sandbox = match alias.sandbox {
                None => "-",
                Some(true) => "on",
                Some(false) => "OFF",
            };
            let path = alias.path.display().to_string();
            [name.clone(), sandbox.into(), path]
        })
        .collect();
    Ok(write_out(
        table::text(["NAME", "SANDBOX", "AGENT"], &rows).as_bytes(),
    ))
}

fn remove(name: &str) -> Result<u8, Failure> {
    check_alias(name).map_err(user::failed)?;
    let removed = user::store_to_change()?
        .remove_alias(name)
        .map_err(user::failed)?;
    if !removed {
        failure::note(&format!("there is no alias `{name}`"));
    }
    Ok(0)
}
