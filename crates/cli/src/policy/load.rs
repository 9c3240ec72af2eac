//! Policies from files. What is wrong with them goes to stderr, all of it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use brig_policy::{
    Compat, Document, Extra, FACTS, Loaded, MAX_BYTES, Map, PolicySet, Problem, Problems, Severity,
    Value,
};

use super::folders;
use crate::args::{FactArgs, UnderArgs};
use crate::failure::{self, Failure};

/// The policies that something is to run under; nothing if none were asked for.
pub fn under(args: &UnderArgs) -> Result<Option<Arc<PolicySet>>, Failure> {
    let compat = args.compat.compat();
    let policies = match folders::find(&args.folder)? {
        Some(found) => found.load(compat)?,
        None if args.policy.is_empty() => return Ok(None),
        None => load(&args.policy, compat)?,
    };
    Ok(Some(Arc::new(policies)))
}

/// Loads policies that hold together. Warnings are shown; problems are shown and refuse it all.
pub fn load<P: AsRef<Path>>(files: &[P], compat: Compat) -> Result<PolicySet, Failure> {
    documents(files, compat).map(PolicySet::new)
}

pub fn documents<P: AsRef<Path>>(
    files: &[P],
    compat: Compat,
) -> Result<Vec<Arc<Document>>, Failure> {
    let mut documents = Vec::new();
    let mut refused = Vec::new();
    for file in files {
        match document(file.as_ref(), compat)? {
            Ok(loaded) => {
                show(&loaded.warnings);
                documents.push(loaded.document);
            }
            Err(problems) => {
                show(&problems.0);
                refused.push(file.as_ref().display().to_string());
            }
        }
    }
    if refused.is_empty() {
        return Ok(documents);
    }
    Err(invalid("policy", &refused))
}

pub fn invalid(what: &str, files: &[String]) -> Failure {
    let names: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
    Failure::new(
        "policy.invalid",
        format!("{what} {} is not sound; nothing was run", names.join(", ")),
    )
}

pub fn document(file: &Path, compat: Compat) -> Result<Result<Loaded, Problems>, Failure> {
    let text = read(file)?;
    Ok(Document::load(&file.display().to_string(), text, compat))
}

/// Reads a file, but not much more than could be a policy.
pub fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    File::open(file)
        .and_then(|open| open.take(MAX_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|error| Failure::file(&file.display().to_string(), &error))?;
    Ok(text)
}

pub fn show(problems: &[Problem]) {
    for problem in problems {
        let text = format!("{problem} [{}]", problem.code);
        match problem.severity {
            Severity::Error => failure::error(&text),
            Severity::Warning => failure::warning(&text),
        }
        if let Some(fix) = &problem.fix {
            failure::hint(fix);
        }
    }
}

/// Facts that a caller adds to those of Brig.
pub fn extra(args: &FactArgs) -> Result<Extra, Failure> {
    Extra::new(facts(&args.fact)).map_err(|error| Failure::new("input.fact", error.to_string()))
}

/// Facts from the command line: JSON where it is, text otherwise. Those of Brig that are text are
/// text, whatever they look like.
pub fn facts(given: &[(String, String)]) -> Map {
    let value = |key: &str, text: &str| match key {
        "argv" | "scan" | "port" => serde_json::from_str(text).ok(),
        _ if FACTS.contains(&key) => None,
        _ => serde_json::from_str(text).ok(),
    };
    given
        .iter()
        .map(|(key, text)| {
            let value = value(key, text).unwrap_or_else(|| Value::from(text.as_str()));
            (key.as_str(), value)
        })
        .collect()
}
