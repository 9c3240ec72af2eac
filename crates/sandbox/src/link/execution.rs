//! One execution through the guest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brig_wire::{Exit, FromGuest, Spawn, ToGuest};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::inbox::Incoming;
use super::{Guard, GuestInstance, Mark, files};
use crate::backend::{Event, ExecCommand, ExecIo, Permit};
use crate::config::OutputOverflow;
use crate::request::Work;
use crate::{Error, ExecRequest, KillReason, Outcome, Output, Result, Usage};

/// How long the guest may take to end an execution before it is ended itself.
const GRACE: Duration = Duration::from_secs(2);

/// The numbers of one execution on the wire.
#[derive(Clone, Copy)]
struct Numbers {
    id: u32,
    stdin: u32,
    stdout: u32,
    stderr: u32,
}

pub async fn run<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    request: ExecRequest,
    io: ExecIo,
) -> Result<Outcome> {
    let network = instance.network.as_ref();
    let admitted = network.map(|network| network.admit(permit.attempts()));
    let outcome = run_admitted(instance, permit, request, io).await;
    if let Some(admitted) = admitted {
        admitted.leave().await;
    }
    outcome
}

async fn run_admitted<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    request: ExecRequest,
    io: ExecIo,
) -> Result<Outcome> {
    let connection = &instance.connection;
    let numbers = Numbers {
        id: connection.number(),
        stdin: connection.number(),
        stdout: connection.number(),
        stderr: connection.number(),
    };
    let (mut inbox, mut route) = connection.open(
        numbers.id,
        &[numbers.stdout, numbers.stderr],
        &[numbers.stdin],
    )?;
    let spawn = prepare(instance, permit, request, numbers, io.stdin.is_some()).await?;
    let program = spawn.argv.first().cloned().unwrap_or_default();
    let terminal = spawn.terminal.is_some();

    let company = Company::join(&instance.running);
    // What was used before, or beside it, is not its own.
    let own_peak = company.alone && instance.guard.forget_peak();
    let begun = Instant::now();
    let mark = instance.guard.mark();
    instance.guard.begins(numbers.id, permit.attempts());
    let listening = instance.listening.as_ref();
    let _heard = listening.map(|listening| listening.hear(numbers.id, permit.attempts()));
    let _ends = Ends(&instance.guard, numbers.id);
    connection.send(&ToGuest::Spawn(Box::new(spawn)))?;
    let ExecIo {
        events,
        stdin,
        mut commands,
    } = io;
    let mut run = Running {
        connection,
        numbers,
        mark,
        own_peak,
        limit: instance.limits.output_bytes.value,
        kill_on_overflow: instance.limits.output_overflow == OutputOverflow::Kill && !terminal,
        events,
        stdout: Output::default(),
        stderr: Output::default(),
        killed: None,
        patience: None,
        waiting: Some((Event::Started, None)),
    };

    let feed = feed(connection, numbers.stdin, stdin);
    tokio::pin!(feed);
    let breach = instance.guard.breach(run.mark);
    tokio::pin!(breach);
    let mut fed = false;
    let mut listening = true;
    let mut guarded = true;
    let exit = loop {
        let events = run.events.clone();
        tokio::select! {
            // A slow reader of events holds the program's output up, but nothing else.
            place = place_for(events.as_ref(), run.killed.is_some()), if run.waiting.is_some() => {
                run.deliver(place);
            }
            incoming = inbox.recv(), if run.waiting.is_none() => match incoming {
                Some(Incoming::Data { channel, bytes }) => run.output(channel, bytes),
                Some(Incoming::End) => {}
                Some(Incoming::Message(FromGuest::Exited(exit))) => break exit,
                Some(Incoming::Message(FromGuest::SpawnFailed { step, errno, .. })) => {
                    route.answered();
                    return Err(cannot_run(program, &step, errno));
                }
                Some(other) => {
                    let problem = format!("unexpected answer: {}", other.name());
                    return Err(instance.lost(Error::Protocol(problem)));
                }
                None => return run.lost(instance, begun),
            },
            command = commands.recv(), if listening => match command {
                Some(ExecCommand::Kill(reason)) => run.kill(reason),
                Some(ExecCommand::Signal(signal)) => {
                    run.tell(&ToGuest::Signal { id: numbers.id, signal });
                }
                Some(ExecCommand::Resize(size)) => {
                    let (rows, columns) = (size.rows, size.columns);
                    run.tell(&ToGuest::Resize { id: numbers.id, rows, columns });
                }
                None => listening = false,
            },
            () = &mut feed, if !fed => fed = true,
            reason = &mut breach, if guarded => {
                guarded = false;
                run.kill(reason);
            }
            () = sleep_until(run.patience.unwrap_or_else(Instant::now)), if run.patience.is_some() => {
                // The guest was told and did not obey.
                run.patience = None;
                instance.guard.kill();
            }
        }
    };
    route.answered();
    if instance.listening.is_some() {
        // What it asked for belongs to its record.
        connection.unasked_heard().await;
    }
    Ok(run.outcome(instance, exit, begun))
}

/// Says that an execution is over, however it ended.
struct Ends<'a, G: Guard>(&'a G, u32);

impl<G: Guard> Drop for Ends<'_, G> {
    fn drop(&mut self) {
        self.0.ends(self.1);
    }
}

async fn prepare<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    request: ExecRequest,
    numbers: Numbers,
    stdin: bool,
) -> Result<Spawn> {
    let limit = instance.limits.output_bytes.value;
    let (scratch, argv) = match request.work {
        Work::Command(argv) => (None, argv),
        Work::Code {
            language,
            source,
            args,
        } => {
            let scratch = permit.execution().as_str();
            let interpreters = &instance.interpreters;
            let (file, argv) = interpreters.command(language, scratch, args, instance.watched)?;
            let base = brig_wire::Base::Run;
            files::put(
                &instance.connection,
                base,
                &file,
                0o644,
                &mut source.as_slice(),
            )
            .await?;
            (Some(scratch.to_owned()), argv)
        }
    };
    // What the execution sets comes last and wins.
    let mut env: Vec<(String, String)> = instance.env.clone();
    for (name, value) in request.env {
        env.retain(|(other, _)| *other != name);
        env.push((name, value));
    }
    if let Some(first) = &instance.first_in_path {
        match env.iter_mut().find(|(name, _)| name == "PATH") {
            Some((_, path)) => *path = format!("{first}:{path}"),
            None => env.push(("PATH".into(), first.clone())),
        }
    }
    if request.terminal.is_some() && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".into(), "xterm-256color".into()));
    }
    Ok(Spawn {
        id: numbers.id,
        argv,
        env: env
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        cwd: match request.cwd {
            Some(cwd) if cwd.starts_with('/') => cwd,
            Some(cwd) => format!("{}/{cwd}", instance.workspace),
            None => instance.workspace.clone(),
        },
        stdin: (stdin || request.terminal.is_some()).then_some(numbers.stdin),
        stdout: numbers.stdout,
        stderr: numbers.stderr,
        terminal: request.terminal.map(|size| (size.rows, size.columns)),
        output_limit: match (request.terminal, instance.limits.output_overflow) {
            (Some(_), _) => u64::MAX,
            (None, OutputOverflow::Truncate) => limit,
            // One more, so that the overflow is seen here.
            (None, OutputOverflow::Kill) => limit.saturating_add(1),
        },
        scratch,
    })
}

/// Passes standard input on until it ends.
async fn feed(
    connection: &Connection,
    channel: u32,
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
) {
    let Some(mut stdin) = stdin else { return };
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match stdin.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if connection
                    .send_data(channel, &buffer[..count])
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
    // Fails only when the guest is gone, which is noticed where its answers are read.
    let _ = connection.send_end(channel);
}

/// Counts an execution among those that are under way.
struct Company<'a> {
    running: &'a AtomicUsize,
    alone: bool,
}

impl<'a> Company<'a> {
    fn join(running: &'a AtomicUsize) -> Self {
        let alone = running.fetch_add(1, Ordering::SeqCst) == 0;
        Self { running, alone }
    }
}

impl Drop for Company<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Running<'a> {
    connection: &'a Connection,
    numbers: Numbers,
    mark: Mark,
    /// Whether the peak of the whole instance is that of this execution.
    own_peak: bool,
    limit: u64,
    kill_on_overflow: bool,
    events: Option<mpsc::Sender<Event>>,
    stdout: Output,
    stderr: Output,
    killed: Option<KillReason>,
    /// Until when the guest may take to end what it was told to end.
    patience: Option<Instant>,
    /// An event on its way to the reader, and the channel and length that it keeps taken.
    waiting: Option<(Event, Option<(u32, usize)>)>,
}

/// Resolves when an event can be handed over; `None`: there is nobody to hand it to. The end of
/// an execution does not wait for a slow reader.
async fn place_for(
    events: Option<&mpsc::Sender<Event>>,
    ending: bool,
) -> Option<mpsc::Permit<'_, Event>> {
    match events {
        Some(events) if ending => events.try_reserve().ok(),
        Some(events) => events.reserve().await.ok(),
        None => None,
    }
}

impl Running<'_> {
    /// Hands the waiting event over, or drops it where nobody listens any more, and lets the guest
    /// send as much again.
    fn deliver(&mut self, place: Option<mpsc::Permit<'_, Event>>) {
        let Some((event, taken)) = self.waiting.take() else {
            return;
        };
        match place {
            Some(place) => place.send(event),
            None if self.killed.is_some() => {}
            None => self.events = None,
        }
        if let Some((channel, length)) = taken {
            // As in `tell`.
            let _ = self.connection.grant(channel, length);
        }
    }

    /// Fails only when the guest is gone, which is noticed where its answers are read.
    fn tell(&self, message: &ToGuest) {
        let _ = self.connection.send(message);
    }

    fn kill(&mut self, reason: KillReason) {
        if self.killed.is_none() {
            self.killed = Some(reason);
            self.patience = Some(Instant::now() + GRACE);
        }
        self.tell(&ToGuest::Kill {
            id: self.numbers.id,
        });
    }

    fn output(&mut self, channel: u32, bytes: Bytes) {
        let is_stdout = channel == self.numbers.stdout;
        let output = if is_stdout {
            &mut self.stdout
        } else {
            &mut self.stderr
        };
        output.total += bytes.len() as u64;
        let room = usize::try_from(self.limit).unwrap_or(usize::MAX) - output.bytes.len();
        output
            .bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        let overflow = output.total > self.limit && self.kill_on_overflow;
        let taken = Some((channel, bytes.len()));
        // The byte that shows an overflow is not for the reader.
        let shown = if overflow { room } else { bytes.len() };
        let bytes = bytes.slice(..bytes.len().min(shown));
        let event = if is_stdout {
            Event::Stdout(bytes)
        } else {
            Event::Stderr(bytes)
        };
        self.waiting = Some((event, taken));
        if overflow {
            let limit_bytes = self.limit;
            self.kill(KillReason::Output { limit_bytes });
        }
    }

    fn outcome<G: Guard>(
        mut self,
        instance: &GuestInstance<G>,
        exit: Exit,
        begun: Instant,
    ) -> Outcome {
        self.stdout.total = self.stdout.total.max(exit.stdout_total);
        self.stderr.total = self.stderr.total.max(exit.stderr_total);
        let (exit_code, signal) = match exit.status {
            status if status & 0x7f == 0 => ((status >> 8) & 0xff, None),
            status => (128 + (status & 0x7f), Some(status & 0x7f)),
        };
        let killed = match (self.killed.take(), signal) {
            (Some(reason), Some(9)) => Some(reason),
            // It ended by itself, maybe just before it would have been killed. A shell tells of a
            // child that was killed by an exit code of its own.
            _ if exit_code != 0 => instance.guard.verdict(self.mark),
            _ => None,
        };
        let whole = self
            .own_peak
            .then(|| instance.guard.peak_memory())
            .flatten();
        let peak = exit.peak_memory_bytes.max(whole.unwrap_or(0));
        Outcome {
            exit_code,
            signal,
            stdout: self.stdout,
            stderr: self.stderr,
            duration: begun.elapsed(),
            killed,
            usage: Usage {
                cpu: Duration::from_micros(exit.cpu_microseconds),
                peak_memory_bytes: peak,
            },
        }
    }

    /// The guest is gone in the middle of it. If a limit or a caller ended it, that is the
    /// outcome; otherwise it is an error.
    fn lost<G: Guard>(self, instance: &GuestInstance<G>, begun: Instant) -> Result<Outcome> {
        let killed = self.killed.or_else(|| instance.guard.verdict(self.mark));
        let Some(killed) = killed else {
            return Err(instance.lost(self.connection.lost()));
        };
        instance.guard.kill();
        Ok(Outcome {
            exit_code: 128 + 9,
            signal: Some(9),
            stdout: self.stdout,
            stderr: self.stderr,
            duration: begun.elapsed(),
            killed: Some(killed),
            usage: Usage {
                cpu: Duration::ZERO,
                peak_memory_bytes: instance.guard.peak_memory().unwrap_or(0),
            },
        })
    }
}

fn cannot_run(program: String, step: &str, errno: i32) -> Error {
    use rustix::io::Errno;
    let error = Errno::from_raw_os_error(errno);
    let (exit_code, problem) = match (step, error) {
        ("execute", Errno::NOENT | Errno::NOTDIR) => (127, "not found in the sandbox".to_owned()),
        ("execute", Errno::ACCESS | Errno::NOEXEC) => (126, error.to_string()),
        (step, Errno::AGAIN) => (125, format!("{step}: the limit of processes is reached")),
        (step, error) => (125, format!("{step}: {error}")),
    };
    Error::CannotRun {
        program,
        exit_code,
        problem,
    }
}
