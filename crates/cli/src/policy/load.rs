//! Policies from files, and facts from the command line.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use brig_policy::{
    Compat, Document, Extra, FACTS, Loaded, Map, PolicySet, Problem, Problems, Severity, Value,
};
use brig_reason::ReasonCode;
use brig_sandbox::{Error, PolicyFiles, read_policy};

use crate::args::FactArgs;
use crate::failure::{self, Failure};

/// Reads policies that all apply, and shows what is wrong with them.
pub(crate) fn load(files: &PolicyFiles, compat: Compat) -> Result<Option<Arc<PolicySet>>, Failure> {
    let loaded = files.load(compat).map_err(refused)?;
    show(&loaded.warnings);
    Ok(loaded.policies)
}

/// Reads one policy.
pub(crate) fn load_one(file: &Path, compat: Compat) -> Result<Arc<PolicySet>, Failure> {
    let policies = load(&PolicyFiles::new([file]), compat)?;
    Ok(policies.unwrap_or_else(|| unreachable!("one file is one policy")))
}

/// Shows all problems of policies that are refused.
pub(crate) fn refused(error: Error) -> Failure {
    if let Error::PolicyInvalid { problems, .. } = &error {
        show(problems);
    }
    error.into()
}

pub(crate) fn document(file: &Path, compat: Compat) -> Result<Result<Loaded, Problems>, Failure> {
    let text = read_policy(file)?;
    Ok(Document::load(&file.display().to_string(), text, compat))
}

/// What was shown, for the field `problems` of `--json`.
static SHOWN: Mutex<Vec<Problem>> = Mutex::new(Vec::new());

/// The problems of policies and other files that were shown so far.
pub(crate) fn problems() -> serde_json::Value {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    serde_json::json!(*shown)
}

pub(crate) fn show(problems: &[Problem]) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.extend_from_slice(problems);
    drop(shown);
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

/// Facts that a caller adds to those that Brig states.
pub(crate) fn extra(args: &FactArgs) -> Result<Extra, Failure> {
    Extra::new(facts(&args.fact))
        .map_err(|error| Failure::new(ReasonCode::InputFact, error.to_string()))
}

/// Facts from the command line. A value that is valid JSON is read as JSON, unless Brig itself states
/// the fact as text.
pub(crate) fn facts(given: &[(String, String)]) -> Map {
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
