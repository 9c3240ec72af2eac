//! Policies from files. What is wrong with them goes to stderr, all of it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use brig_policy::{
    Compat, Document, Loaded, MAX_BYTES, Map, PolicySet, Problem, Problems, Severity, Value,
};

use crate::failure::{self, Failure};

/// Loads policies that hold together. Warnings are shown; problems are shown and refuse it all.
pub fn load<P: AsRef<Path>>(files: &[P], compat: Compat) -> Result<PolicySet, Failure> {
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
        return Ok(PolicySet::new(documents));
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

/// Facts from the command line: JSON where it is, text otherwise.
pub fn facts(given: &[(String, String)]) -> Map {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    given
        .iter()
        .map(|(key, text)| (key.as_str(), value(text)))
        .collect()
}
