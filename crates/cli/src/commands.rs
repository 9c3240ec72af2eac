//! `brig commands`: which installed programs a policy denies and allows.

use std::path::Path;

use brig_guest_host::commands::{Scan, scan};
use serde_json::{Value, json};

use crate::args::{CommandsCommand, ScanArgs};
use crate::failure::Failure;
use crate::policy::load;
use crate::{json, table, units, user, write_out};

pub(crate) fn run(command: &CommandsCommand) -> u8 {
    let CommandsCommand::Scan(args) = command;
    match look(args) {
        Ok(code) => code,
        Err(failure) => {
            if args.json {
                json::print(&json!({ "error": failure.json() }));
            }
            failure.show();
            failure.exit()
        }
    }
}

fn look(args: &ScanArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let default = user::default_policy(&store, &user::load(&store)?);
    let Some(policies) = load::load(
        &args.policies.files(default)?,
        args.policies.compat.compat(),
    )?
    else {
        return Err(Failure::usage("no policy given").with_hint("add --policy FILE"));
    };
    let rootfs = args.rootfs.as_deref();
    let root = brig_native::command_root(rootfs).map_err(|error| {
        let place = rootfs.unwrap_or(Path::new("/")).display().to_string();
        Failure::file(&place, &error)
    })?;
    let found = scan(policies.commands(), &root);
    let left = root.programs().into_iter().filter(|path| {
        let denied = found.denied.contains_key(path);
        !denied
            && found
                .allowed
                .as_ref()
                .is_none_or(|allowed| allowed.has(path))
    });
    let left: Vec<String> = left.map(|path| path.display().to_string()).collect();
    if args.json {
        json::print(&object(&found, &left));
        return Ok(0);
    }
    Ok(write_out(text(&found, &left).as_bytes()))
}

/// Denied names of programs that are not installed.
fn not_installed(found: &Scan) -> impl Iterator<Item = (&String, &str)> {
    let installed = |name: &str| found.denied.values().any(|denied| denied.name == name);
    let names = found.names.iter().map(|(name, rule)| (name, &**rule));
    names.filter(move |(name, _)| !installed(name))
}

fn object(found: &Scan, left: &[String]) -> Value {
    let covered: Vec<Value> = (found.denied.iter())
        .map(|(path, denied)| json!({"path": path, "name": denied.name, "rule": *denied.rule}))
        .collect();
    let denied: Vec<Value> = not_installed(found)
        .map(|(name, rule)| json!({"name": name, "rule": rule}))
        .collect();
    let allowed = found.allowed.as_ref().map(|allowed| {
        let without: Vec<Value> = (allowed.without_shell.iter())
            .map(|(script, shell)| json!({"script": script, "shell": shell}))
            .collect();
        json!({
            "programs": allowed.programs,
            "interpreters": allowed.interpreters,
            "loaders": allowed.loaders,
            "missing": allowed.missing,
            "without_shell": without,
        })
    });
    json!({
        "covered": covered,
        "denied": denied,
        "allowed": allowed,
        "left": left,
        "error": null,
    })
}

fn text(found: &Scan, left: &[String]) -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for (path, denied) in &found.denied {
        let path = path.display().to_string();
        rows.push([
            "covered".into(),
            denied.name.clone(),
            path,
            denied.rule.to_string(),
        ]);
    }
    for (name, rule) in not_installed(found) {
        rows.push([
            "denied".into(),
            name.clone(),
            "not installed".into(),
            rule.into(),
        ]);
    }
    if let Some(allowed) = &found.allowed {
        for (what, paths) in [
            ("allowed", &allowed.programs),
            ("interpreter", &allowed.interpreters),
            ("loader", &allowed.loaders),
        ] {
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let path = path.display().to_string();
                rows.push([what.into(), name.into_owned(), path, String::new()]);
            }
        }
        for rule in &allowed.missing {
            rows.push([
                "allowed".into(),
                rule.clone(),
                "not installed".into(),
                rule.clone(),
            ]);
        }
        for (script, shell) in &allowed.without_shell {
            let problem = format!("needs {}, which is not listed", shell.display());
            rows.push([
                "cannot start".into(),
                script.display().to_string(),
                problem,
                String::new(),
            ]);
        }
    }
    let mut text = table::text(["WHAT", "PROGRAM", "WHERE", "RULE"], &rows);
    let count = left.len();
    let programs = units::count(count, "program");
    text.push_str(&format!("{programs} of PATH can be run\n"));
    text
}
