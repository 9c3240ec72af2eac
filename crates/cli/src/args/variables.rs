//! Flags for environment variables.

use std::env::VarError;
use std::path::{Path, PathBuf};

use brig_reason::ReasonCode;
use clap::Args;

use crate::failure::Failure;

/// The size limit of a file of variables, as of all variables together.
const LARGEST: u64 = 1 << 20;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EnvArgs {
    /// Set an environment variable in the sandbox. KEY alone takes the value from your environment,
    /// so that other users can't read it in the list of processes. Nothing else of your environment is
    /// passed on
    #[arg(short, long, value_name = "KEY[=VALUE]", help_heading = "Sandbox")]
    // Read later: clap would repeat what is wrong with it, and it may be a secret.
    env: Vec<String>,
    /// Set the variables of a file: lines KEY=VALUE; KEY alone takes the value from your environment,
    /// if it is set there; `#` begins a comment line. --env overrides them
    #[arg(long, value_name = "FILE", help_heading = "Sandbox")]
    env_file: Vec<PathBuf>,
}

impl EnvArgs {
    /// The first flag that was given.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        match (self.env.is_empty(), self.env_file.is_empty()) {
            (false, _) => Some("--env"),
            (true, false) => Some("--env-file"),
            (true, true) => None,
        }
    }

    /// The variables: of the files in their order, then those of --env.
    pub(crate) fn read(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut variables = Vec::new();
        for file in &self.env_file {
            variables.append(&mut read(file)?);
        }
        for (number, text) in (1..).zip(&self.env) {
            variables.push(variable(text).map_err(|problem| wrong(number, text, problem))?);
        }
        // The last one of a name counts.
        let mut kept: Vec<(String, String)> = Vec::with_capacity(variables.len());
        for (name, value) in variables {
            kept.retain(|(other, _)| *other != name);
            kept.push((name, value));
        }
        Ok(kept)
    }
}

/// `KEY=VALUE`, or `KEY` for the value in our own environment. The value may hold anything, also `=`.
fn variable(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some(("", _)) => return Err("has no name"),
        Some((key, value)) => return Ok((key.into(), value.into())),
        None if is_name(text) => {}
        None => return Err("must be KEY=VALUE or KEY"),
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.into(), value)),
        Err(VarError::NotPresent) => Err("is not set in your environment"),
        Err(VarError::NotUnicode(_)) => Err("has a value that is not UTF-8"),
    }
}

/// A problem of --env. Only a name is repeated.
fn wrong(number: usize, text: &str, problem: &str) -> Failure {
    let which = match is_name(text) {
        true => format!("`{text}` of --env"),
        false => format!("the value of --env number {number}"),
    };
    Failure::new(ReasonCode::InputUsage, format!("{which} {problem}"))
        .with_hint("--env KEY=VALUE, or --env KEY for the value in your environment")
}

fn read(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    let name = file.display().to_string();
    let text = brig_sandbox::read_named(file, LARGEST);
    let text = text.map_err(|error| Failure::file(&name, &error))?;
    let own = |name: &str| std::env::var(name).ok();
    parse(&text, own).map_err(|(line, problem)| {
        Failure::new(
            ReasonCode::InputUsage,
            format!("line {line} of `{name}` {problem}"),
        )
        .with_hint("a line is KEY=VALUE, or KEY for the value in your environment")
    })
}

/// The format of `docker run --env-file`. A problem is told by its line: the text may be a secret.
fn parse(
    text: &[u8],
    own: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, (usize, &'static str)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut variables = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = str::from_utf8(line).map_err(|_| (number, "is not UTF-8"))?;
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line.trim_end(), None),
        };
        if !is_name(name) {
            return Err((number, "does not begin with the name of a variable"));
        }
        if let Some(value) = value.or_else(|| own(name)) {
            variables.push((name.to_owned(), value));
        }
    }
    Ok(variables)
}

/// What may be shown in a message: nothing that could be a value.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_takes_the_value_of_the_caller() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(variable("PATH"), Ok(("PATH".into(), path)));
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        for wrong in ["BRIG_TEST_SURELY_NOT_SET", "A B", "", "=b"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_not_repeated_unless_it_is_a_name() {
        let failed = |text: &str| wrong(2, text, variable(text).unwrap_err()).to_string();
        for secret in ["sk-1234", "=sk-1234", "a b sk-1234"] {
            let said = failed(secret);
            assert!(
                !said.contains("1234") && said.contains("number 2"),
                "{said}"
            );
        }
        assert!(failed("BRIG_TEST_SURELY_NOT_SET").contains("BRIG_TEST_SURELY_NOT_SET"));
    }

    #[test]
    fn a_file_of_variables_is_read_as_docker_reads_it() {
        let own = |name: &str| (name == "OWN").then(|| "mine".to_owned());
        let text =
            b"\xef\xbb\xbf# comment\n\n  A=1 \r\nB=\"q\" # not a comment\nC=\nOWN\nNOT_SET\nD=a=b";
        let read = parse(text, own).unwrap();
        let read: Vec<(&str, &str)> = read.iter().map(|(a, b)| (&**a, &**b)).collect();
        let expected = [
            ("A", "1 "),
            ("B", "\"q\" # not a comment"),
            ("C", ""),
            ("OWN", "mine"),
            ("D", "a=b"),
        ];
        assert_eq!(read, expected);
        for (wrong, line) in [("A=1\n=2", 2), ("A B=1", 1), ("A =1", 1), ("sk-secret", 1)] {
            assert_eq!(parse(wrong.as_bytes(), own).unwrap_err().0, line, "{wrong}");
        }
    }
}
