//! Runs programs that consist of [`Step`]s.

use std::time::{Duration, Instant};

use brig_sandbox::backend::ExecSignal;
use brig_sandbox::config::OutputOverflow;
use brig_sandbox::request::Work;
use brig_sandbox::{Error, Event, Execution, KillReason, Outcome, Output, Result};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::files::Problem;
use super::instance::Machine;
use crate::program::Step;

const WORKSPACE: &str = "/workspace";
const PIECE: usize = 64 * 1024;

/// How a program ended before its last step.
enum End {
    Failed(Problem),
    Exited(i32),
    Killed(KillReason),
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        End::Failed(problem)
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

/// What a program wrote, and where it goes.
struct Console {
    stdout: Output,
    stderr: Output,
    events: Option<mpsc::Sender<Event>>,
    limit: u64,
    /// Too much output is an end.
    kills: bool,
}

impl Console {
    async fn write(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), End> {
        for piece in bytes.chunks(PIECE) {
            let output = match stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            let room = self.limit.saturating_sub(output.bytes.len() as u64);
            let kept = piece.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            output.bytes.extend_from_slice(&piece[..kept]);
            output.total += piece.len() as u64;
            let over = output.total > self.limit;
            if let Some(events) = &self.events {
                let piece = Bytes::copy_from_slice(piece);
                let event = match stream {
                    Stream::Stdout => Event::Stdout(piece),
                    Stream::Stderr => Event::Stderr(piece),
                };
                let _ = events.send(event).await;
            }
            if over && self.kills {
                return Err(End::Killed(KillReason::Output {
                    limit_bytes: self.limit,
                }));
            }
        }
        Ok(())
    }
}

pub(super) async fn execute(machine: &Machine, mut execution: Execution) -> Result<Outcome> {
    let begun = Instant::now();
    let steps = steps(&execution.work)?;
    let directory = match execution.cwd.as_deref() {
        None => String::new(),
        Some(cwd) => directory(machine, cwd)?,
    };
    let mut console = Console {
        stdout: Output::default(),
        stderr: Output::default(),
        events: execution.events.take(),
        limit: execution.output_bytes,
        kills: machine.limits.output_overflow == OutputOverflow::Kill && !execution.uncut,
    };
    let (_closed, none) = mpsc::unbounded_channel();
    let mut signals = std::mem::replace(&mut execution.signals, none);
    let killed = async {
        loop {
            match signals.recv().await {
                Some(ExecSignal::Kill(reason)) => return reason,
                // There are no other signals here.
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    };
    let program = Program {
        machine,
        execution: &mut execution,
        console: &mut console,
        directory,
    };
    let end = tokio::select! {
        end = program.run(&steps) => end,
        reason = killed => Err(End::Killed(reason)),
        () = machine.until_end() => return Err(Error::InstanceLost("the service ended it".into())),
    };
    let (exit_code, killed) = match end {
        Ok(()) => (0, None),
        Err(End::Exited(code)) => (code, None),
        Err(End::Failed(problem)) => {
            let line = format!("{problem}\n");
            let _ = console.write(Stream::Stderr, line.as_bytes()).await;
            (1, None)
        }
        Err(End::Killed(reason)) => (137, Some(reason)),
    };
    let mut outcome = Outcome::exited(exit_code);
    outcome.stdout = console.stdout;
    outcome.stderr = console.stderr;
    outcome.duration = begun.elapsed();
    outcome.killed = killed;
    Ok(outcome)
}

fn steps(work: &Work) -> Result<Vec<Step>> {
    let argv = match work {
        Work::Command(argv) => argv,
        Work::Code { language, .. } => {
            return Err(Error::NoInterpreter {
                language: language.name(),
                problem: "there is no Linux userland".into(),
            });
        }
    };
    let steps = match argv.as_slice() {
        [name, steps] if name == "steps" => serde_json::from_str(steps).ok(),
        _ => None,
    };
    steps.ok_or_else(|| Error::CannotRun {
        program: argv.first().cloned().unwrap_or_default(),
        exit_code: 127,
        problem: "not found".into(),
    })
}

/// The path of a directory below the workspace; empty for the workspace itself.
fn directory(machine: &Machine, cwd: &str) -> Result<String> {
    let path = cwd.strip_prefix(WORKSPACE).unwrap_or(cwd);
    let path = path.trim_matches('/');
    if path.is_empty() || machine.files().is_directory(path) {
        return Ok(path.to_owned());
    }
    Err(Error::CannotRun {
        program: "steps".into(),
        exit_code: 126,
        problem: format!("there is no directory `{cwd}`"),
    })
}

struct Program<'a> {
    machine: &'a Machine,
    execution: &'a mut Execution,
    console: &'a mut Console,
    directory: String,
}

impl Program<'_> {
    async fn run(mut self, steps: &[Step]) -> Result<(), End> {
        if let Some(events) = &self.console.events {
            let _ = events.send(Event::Started).await;
        }
        for step in steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), End> {
        match step {
            Step::Print(text) => self.print(text.as_bytes()).await,
            Step::PrintError(text) => self.console.write(Stream::Stderr, text.as_bytes()).await,
            Step::Zeros(count) => self.zeros(Stream::Stdout, *count).await,
            Step::ZerosError(count) => self.zeros(Stream::Stderr, *count).await,
            Step::PrintForever => self.forever(Stream::Stdout).await,
            Step::PrintErrorForever => self.forever(Stream::Stderr).await,
            Step::PrintVariable(name) => {
                let all = self.execution.env.iter().rev();
                let mut all = all.chain(self.machine.env.iter().rev());
                let value = all.find(|(known, _)| known == name);
                let value = value.map(|(_, value)| value.clone()).unwrap_or_default();
                self.print(value.as_bytes()).await
            }
            Step::PrintDirectory => {
                let path = format!("{WORKSPACE}/{}", self.directory);
                let line = format!("{}\n", path.trim_end_matches('/'));
                self.print(line.as_bytes()).await
            }
            Step::CopyInput => {
                let mut piece = vec![0; PIECE];
                while let Some(count) = self.input(&mut piece).await {
                    self.print(&piece[..count]).await?;
                }
                Ok(())
            }
            Step::CountInput => {
                let mut piece = vec![0; PIECE];
                let mut total = 0;
                while let Some(count) = self.input(&mut piece).await {
                    total += count;
                }
                self.print(format!("{total}\n").as_bytes()).await
            }
            Step::Cat(path) => {
                let content = self.machine.files().read(&self.path(path))?;
                self.print(&content).await
            }
            Step::List => {
                let list = self.list();
                self.print(list.as_bytes()).await
            }
            Step::SleepMs(time) => {
                tokio::time::sleep(Duration::from_millis(*time)).await;
                Ok(())
            }
            Step::WaitFor(path) => {
                let path = self.path(path);
                while !self.machine.files().0.contains_key(&path) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(())
            }
            Step::Exit(code) => Err(End::Exited(*code)),
            Step::Write(..)
            | Step::Append(..)
            | Step::MakeDirectory(_)
            | Step::Rename(..)
            | Step::Remove(_) => Ok(self.change(step)?),
        }
    }

    fn change(&self, step: &Step) -> Result<(), Problem> {
        let limit = self.machine.limits.disk_bytes.value;
        let mut files = self.machine.files();
        match step {
            Step::Write(path, text) => {
                files.write(&self.path(path), 0o644, text.clone().into_bytes(), limit)
            }
            Step::Append(path, text) => {
                let path = self.path(path);
                let mut content = files.read(&path).unwrap_or_default();
                content.extend_from_slice(text.as_bytes());
                files.write(&path, 0o644, content, limit)
            }
            Step::MakeDirectory(path) => files.make_directory(&self.path(path)),
            Step::Rename(from, to) => files.rename(&self.path(from), &self.path(to)),
            Step::Remove(path) => {
                files.remove(&self.path(path));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Below the workspace.
    fn path(&self, path: &str) -> String {
        match self.directory.as_str() {
            "" => path.to_owned(),
            directory => format!("{directory}/{path}"),
        }
    }

    fn list(&self) -> String {
        let prefix = match self.directory.as_str() {
            "" => String::new(),
            directory => format!("{directory}/"),
        };
        let files = self.machine.files();
        let names = files.0.keys().filter_map(|name| name.strip_prefix(&prefix));
        names.map(|name| format!("./{name}\n")).collect()
    }

    async fn print(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.console.write(Stream::Stdout, bytes).await
    }

    async fn zeros(&mut self, stream: Stream, count: u64) -> Result<(), End> {
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        while left > 0 {
            let piece = left.min(PIECE);
            self.console.write(stream, &vec![0; piece]).await?;
            left -= piece;
        }
        Ok(())
    }

    async fn forever(&mut self, stream: Stream) -> Result<(), End> {
        loop {
            self.console.write(stream, b"something\n").await?;
            // Others run too.
            tokio::task::yield_now().await;
        }
    }

    /// Nothing at the end.
    async fn input(&mut self, piece: &mut [u8]) -> Option<usize> {
        let stdin = self.execution.stdin.as_mut()?;
        match stdin.read(piece).await {
            Ok(0) | Err(_) => None,
            Ok(count) => Some(count),
        }
    }
}
