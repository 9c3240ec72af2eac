//! Flags for what to run: `-c CODE`, `FILE` or `-- CMD…`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use brig_reason::ReasonCode;
use brig_sandbox::Language;
use brig_sandbox::request::Work;
use clap::Args;

use super::{JsonForm, Lang};
use crate::drive::Attachment;
use crate::failure::Failure;

/// The size limit of a script.
const LARGEST_SCRIPT: u64 = 64 << 20;

#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    /// Run this source code (Python unless --lang says otherwise)
    #[arg(
        short = 'c',
        long = "code",
        value_name = "CODE",
        allow_hyphen_values = true
    )]
    pub code: Option<String>,
    /// The language of CODE or FILE [default: by FILE's extension or first line, else Python]
    #[arg(long, value_name = "NAME", value_enum)]
    pub lang: Option<Lang>,
    /// The directory to start in, relative to /workspace
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Connect standard input. Without it, the program's standard input is empty
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the program a terminal. Its output reaches your terminal unchanged, including escape
    /// sequences
    #[arg(short, long)]
    pub tty: bool,
    /// A script on the host and its arguments; `-` reads it from standard input. After `--`: a
    /// command in the sandbox and its arguments
    #[arg(value_name = "FILE", trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// The positional arguments.
#[derive(Debug, PartialEq, Eq)]
enum Words<'a> {
    Nothing,
    /// A script and its arguments; or, with -c, arguments alone.
    Plain(&'a OsStr, Vec<&'a OsStr>),
    /// What follows `--`.
    Command(Vec<&'a OsStr>),
}

/// The parser removes `--`, but it distinguishes a command from a script. So the first one is doubled
/// before parsing, and [`WorkArgs::words`] finds the second.
pub(crate) fn double_dash(
    args: impl IntoIterator<Item = OsString>,
) -> impl Iterator<Item = OsString> {
    let mut seen = false;
    args.into_iter().flat_map(move |arg| {
        let first = !seen && arg == "--";
        seen |= first;
        std::iter::repeat_n(arg, if first { 2 } else { 1 })
    })
}

impl WorkArgs {
    pub(crate) fn attachment(&self, json: Option<JsonForm>) -> Result<Attachment, Failure> {
        Attachment::new(self.interactive, self.tty, json)
    }

    fn words(&self) -> Words<'_> {
        let mut rest = self.words.iter().map(OsString::as_os_str);
        match rest.next() {
            None => Words::Nothing,
            Some(first) if first == "--" => Words::Command(rest.collect()),
            Some(first) => {
                let mut args: Vec<&OsStr> = rest.collect();
                if let Some(at) = args.iter().position(|arg| *arg == "--") {
                    args.remove(at);
                }
                Words::Plain(first, args)
            }
        }
    }

    /// The script, if it is a file on the host.
    pub(crate) fn script(&self) -> Option<&Path> {
        match (&self.code, self.words()) {
            (None, Words::Plain(file, _)) => Some(Path::new(file))
                .filter(|file| file.as_os_str() != "-" && !brig_input::is_descriptor(file)),
            _ => None,
        }
    }

    /// Reads the code. Called after the command line was checked, so that a mistake in it does not wait for
    /// standard input.
    pub(crate) fn read(&self) -> Result<Work, Failure> {
        match (&self.code, self.words()) {
            (Some(code), words) => {
                let args = match words {
                    Words::Nothing => Vec::new(),
                    Words::Command(args) => args,
                    Words::Plain(first, args) => std::iter::once(first).chain(args).collect(),
                };
                let language = self.lang.unwrap_or(Lang::Python).into();
                let source = code.clone().into_bytes();
                Ok(Work::Code {
                    language,
                    source,
                    args: texts(args)?,
                })
            }
            (None, Words::Plain(file, args)) => self.read_script(Path::new(file), texts(args)?),
            (None, Words::Command(_)) if self.lang.is_some() => Err(Failure::usage(
                "--lang is for -c CODE and FILE, not for a command",
            )),
            (None, Words::Command(argv)) if !argv.is_empty() => Ok(Work::Command(texts(argv)?)),
            (None, Words::Command(_) | Words::Nothing) => Err(Failure::usage("nothing to run")
                .with_hint("give -c CODE, a FILE, or -- and a command")),
        }
    }

    fn read_script(&self, file: &Path, args: Vec<String>) -> Result<Work, Failure> {
        let standard_input = file.as_os_str() == "-";
        if standard_input && self.interactive {
            return Err(
                Failure::usage("standard input cannot be both the script and its input")
                    .with_hint("leave out -i, or give the script as a file"),
            );
        }
        let name = file.display();
        let source = if standard_input {
            brig_input::read_stream(std::io::stdin(), LARGEST_SCRIPT)
        } else {
            // What is read is shown to the code, so code must not choose the file by a link.
            brig_sandbox::read_named(file, LARGEST_SCRIPT)
        }
        .map_err(|error| {
            let failure = Failure::file(&name.to_string(), &error);
            match error.kind() {
                std::io::ErrorKind::NotFound => failure.with_hint(format!(
                    "FILE is a script on the host; to run a command in the sandbox: brig run -- \
                     {name}"
                )),
                _ => failure,
            }
        })?;
        let language = match self.lang {
            Some(lang) => lang.into(),
            None => guess(file, &source)
                .or(standard_input.then_some(Language::Python))
                .ok_or_else(|| {
                    Failure::new(
                        ReasonCode::InputLanguage,
                        format!("cannot determine the language of `{name}`"),
                    )
                    .with_hint("set it with --lang python, bash or node")
                })?,
        };
        Ok(Work::Code {
            language,
            source,
            args,
        })
    }
}

/// By the extension, then by the first line.
fn guess(file: &Path, source: &[u8]) -> Option<Language> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("py" | "pyw") => return Some(Language::Python),
        Some("sh" | "bash") => return Some(Language::Bash),
        Some("js" | "mjs" | "cjs") => return Some(Language::Node),
        _ => {}
    }
    let line = source
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line
        .split_whitespace()
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = match words.next()? {
        "env" => words.find(|word| !word.starts_with('-') && !word.contains('='))?,
        program => program,
    };
    match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "python" | "pypy" => Some(Language::Python),
        "bash" | "sh" => Some(Language::Bash),
        "node" | "nodejs" => Some(Language::Node),
        _ => None,
    }
}

fn texts(words: Vec<&OsStr>) -> Result<Vec<String>, Failure> {
    words
        .into_iter()
        .map(|word| {
            word.to_str()
                .map(str::to_owned)
                .ok_or_else(|| Failure::usage(format!("`{}` is not UTF-8", word.to_string_lossy())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    /// What `brig run …` makes of its words.
    fn work(line: &str) -> Result<Work, Failure> {
        let args = ["brig", "run"]
            .into_iter()
            .chain(line.split(' '))
            .map(OsString::from);
        match Cli::parse_args(args).map(|cli| cli.command) {
            Ok(Command::Run(run)) => run.work.read(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(Failure::usage(error.to_string())),
        }
    }

    #[test]
    fn a_double_dash_tells_a_command_from_a_script() {
        let command = |line: &str| match work(line) {
            Ok(Work::Command(argv)) => argv.join(" "),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(command("-- ls"), "ls");
        assert_eq!(command("-i -- ls -l -- --json"), "ls -l -- --json");
        assert_eq!(command("-- a -- -- b"), "a -- -- b");
        assert!(work("--").is_err());
        assert!(work("-i").is_err());
        assert!(work("--lang bash -- ls").is_err());
    }

    #[test]
    fn what_follows_code_or_a_script_is_for_it() {
        let args = |line: &str| match work(line) {
            Ok(Work::Code { args, .. }) => args.join(" "),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(args("-c 1"), "");
        assert_eq!(args("-c 1 a --json -- b"), "a --json -- b");
        assert_eq!(args("-c 1 -- -x -- y"), "-x -- y");
        let script = "--lang python Cargo.toml";
        assert_eq!(args(&format!("{script} -x --json")), "-x --json");
        assert_eq!(args(&format!("{script} -- -x -- --")), "-- -x -- --");
        assert!(work("--no-such-flag Cargo.toml").is_err());
    }

    #[test]
    fn the_language_is_told_by_extension_then_by_the_first_line() {
        let guess = |file: &str, source: &str| guess(Path::new(file), source.as_bytes());
        assert_eq!(guess("a.py", "#!/bin/bash\n"), Some(Language::Python));
        assert_eq!(guess("a.sh", ""), Some(Language::Bash));
        assert_eq!(guess("a.mjs", ""), Some(Language::Node));
        assert_eq!(
            guess("a", "#!/usr/bin/python3.11 -u\n"),
            Some(Language::Python)
        );
        assert_eq!(
            guess("a", "#!/usr/bin/env -S node --test\n"),
            Some(Language::Node)
        );
        assert_eq!(
            guess("a", "#! /usr/bin/env PYTHONUTF8=1 python3\n"),
            Some(Language::Python)
        );
        assert_eq!(guess("a", "#!/bin/sh"), Some(Language::Bash));
        assert_eq!(guess("a", "#!/usr/bin/perl\n"), None);
        assert_eq!(guess("a.txt", "print(1)"), None);
        assert_eq!(guess("a", "#!"), None);
    }
}
