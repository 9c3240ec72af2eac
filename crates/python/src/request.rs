//! What is to be run.

use std::collections::BTreeMap;

use brig_policy::{Extra, load_facts};
use brig_sandbox::{Error, Language, Request, Work};
use serde::Deserialize;
use serde_json::Value;

use crate::config::seconds_of;
use crate::error::invalid;

/// All that is rarely given: JSON from the package.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    timeout: Option<f64>,
    output: Option<u64>,
    facts: Option<Value>,
}

/// Source code in a language, or a command.
pub(crate) fn request(
    language: Option<&str>,
    source: Vec<u8>,
    argv: Vec<String>,
    options: Option<&str>,
    stdin: Option<Vec<u8>>,
) -> Result<Request, Error> {
    let options: Options = match options {
        Some(text) => serde_json::from_str(text).map_err(|error| invalid("request", error))?,
        None => Options::default(),
    };
    let work = match language {
        Some(name) => Work::Code {
            language: self::language(name)?,
            source,
            args: options.args,
        },
        None => Work::Command(argv),
    };
    let mut request = Request::new(work);
    request.env = options.env.into_iter().collect();
    request.cwd = options.cwd;
    request.timeout = options.timeout.map(seconds_of).transpose()?;
    request.output_bytes = options.output;
    request.facts = facts(options.facts.as_ref())?;
    if let Some(bytes) = stdin {
        request.stdin = Some(Box::new(std::io::Cursor::new(bytes)));
    }
    Ok(request)
}

pub(crate) fn language(name: &str) -> Result<Language, Error> {
    let known = [Language::Python, Language::Bash, Language::Node];
    let found = known.into_iter().find(|language| language.name() == name);
    let unknown = || {
        let name = name.escape_debug();
        invalid(
            "language",
            format!("`{name}` is none of python, bash, node"),
        )
    };
    found.ok_or_else(unknown)
}

pub(crate) fn facts(given: Option<&Value>) -> Result<Extra, Error> {
    let Some(given) = given else {
        return Ok(Extra::default());
    };
    let map = load_facts("facts", given.to_string()).map_err(|error| invalid("facts", error))?;
    Extra::new(map).map_err(|error| invalid("facts", error))
}
