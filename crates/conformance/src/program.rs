//! Programs that every backend can run. A backend with a Linux userland runs them as a shell script;
//! another one says how it runs them: [`crate::Fixture::with_programs`].

use std::fmt::Write;

use brig_sandbox::Request;
use serde::{Deserialize, Serialize};

/// One step of a program. The program ends with exit code 1 at the first step that fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Print(String),
    PrintError(String),
    /// So many zero bytes.
    Zeros(u64),
    ZerosError(u64),
    /// `something` and a newline, again and again.
    PrintForever,
    PrintErrorForever,
    PrintVariable(String),
    /// The current directory, and a newline.
    PrintDirectory,
    /// Standard input to standard output.
    CopyInput,
    /// The number of bytes of standard input, and a newline.
    CountInput,
    /// The content of a file.
    Cat(String),
    Write(String, String),
    Append(String, String),
    /// With its parents.
    MakeDirectory(String),
    Rename(String, String),
    /// A file, or a directory with all that is in it. It may be missing.
    Remove(String),
    /// All paths below the current directory, sorted, one on each line: `./a`.
    List,
    SleepMs(u64),
    /// Until the path exists.
    WaitFor(String),
    Exit(i32),
}

pub(crate) fn print(text: &str) -> Step {
    Step::Print(text.into())
}

pub(crate) fn cat(path: &str) -> Step {
    Step::Cat(path.into())
}

pub(crate) fn write(path: &str, text: &str) -> Step {
    Step::Write(path.into(), text.into())
}

pub(crate) fn make_directory(path: &str) -> Step {
    Step::MakeDirectory(path.into())
}

pub(crate) fn remove(path: &str) -> Step {
    Step::Remove(path.into())
}

/// As a script for the shell that every Linux userland has.
pub(crate) fn shell(steps: &[Step]) -> Request {
    let mut script = String::new();
    for step in steps {
        let _ = writeln!(script, "{}", line(step));
    }
    Request::command(["/bin/sh", "-ec", &script])
}

fn line(step: &Step) -> String {
    match step {
        Step::Print(text) => format!("printf %s {}", quoted(text)),
        Step::PrintError(text) => format!("printf %s {} >&2", quoted(text)),
        Step::Zeros(count) => format!("head -c {count} /dev/zero"),
        Step::ZerosError(count) => format!("head -c {count} /dev/zero >&2"),
        Step::PrintForever => "while :; do echo something; done".into(),
        Step::PrintErrorForever => "while :; do echo something; done >&2".into(),
        Step::PrintVariable(name) => format!("printf %s \"${{{name}}}\""),
        Step::PrintDirectory => "pwd".into(),
        Step::CopyInput => "cat".into(),
        Step::CountInput => "wc -c | tr -d ' '".into(),
        Step::Cat(path) => format!("cat {}", quoted(path)),
        Step::Write(path, text) => format!("printf %s {} > {}", quoted(text), quoted(path)),
        Step::Append(path, text) => format!("printf %s {} >> {}", quoted(text), quoted(path)),
        Step::MakeDirectory(path) => format!("mkdir -p {}", quoted(path)),
        Step::Rename(from, to) => format!("mv {} {}", quoted(from), quoted(to)),
        Step::Remove(path) => format!("rm -rf {}", quoted(path)),
        Step::List => "find . -mindepth 1 | LC_ALL=C sort".into(),
        Step::SleepMs(time) => format!("sleep {}.{:03}", time / 1000, time % 1000),
        Step::WaitFor(path) => {
            format!("while [ ! -e {} ]; do sleep 0.02; done", quoted(path))
        }
        Step::Exit(code) => format!("exit {code}"),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
