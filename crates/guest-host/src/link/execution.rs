//! One execution through the guest.

use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brig_sandbox::backend::{Event, ExecSignal, Execution, Permit};
use brig_sandbox::config::OutputOverflow;
use brig_sandbox::request::{Stdin, Work};
use brig_sandbox::{Error, KillReason, Outcome, Output, Result};
use brig_wire::{Exit, FromGuest, Spawn, ToGuest};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::Connection;
use super::inbox::Incoming;
use super::{Guard, GuestInstance, Mark, files, language};

/// The exit code of an execution whose end is not known. That of `brig` is the same.
const NOT_KNOWN: i32 = 125;

/// The numbers of one execution on the wire.
#[derive(Clone, Copy)]
struct Numbers {
    id: u32,
    stdin: u32,
    stdout: u32,
    stderr: u32,
}

pub(super) async fn run<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    execution: Execution,
) -> Result<Outcome> {
    let network = instance.network.as_ref();
    let admitted = network.map(|network| network.admit(permit.attempts()));
    let outcome = run_admitted(instance, permit, execution).await;
    if let Some(admitted) = admitted {
        admitted.leave().await;
    }
    outcome
}

async fn run_admitted<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    mut execution: Execution,
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
    let tools = instance.tools.as_ref().zip(permit.tools());
    let tools = tools.map(|(server, gate)| server.open(gate));
    let mut spawn = prepare(instance, permit, &mut execution, numbers).await?;
    if let Some(tools) = &tools {
        tools.add_to(&mut spawn.env);
    }
    let Execution {
        stdin,
        events,
        mut signals,
        supervisor,
        output_bytes,
        ..
    } = execution;
    let program = spawn.argv.first().cloned().unwrap_or_default();
    let terminal = spawn.terminal.is_some();
    let timeout = spawn.timeout;

    let concurrent = Concurrency::enter(&instance.running, &instance.joined);
    // Usage is only this execution's own if nothing else runs at the same time.
    let own_peak = concurrent.alone && instance.guard.forget_peak();
    let cpu = concurrent
        .alone
        .then(|| instance.guard.cpu_time())
        .flatten();
    let begun = Instant::now();
    let mark = instance.guard.mark();
    instance.guard.begins(numbers.id, permit.attempts());
    let notifications = instance.notifications.as_ref();
    let _route = notifications.map(|server| server.route(numbers.id, permit.attempts()));
    let _ends = EndGuard(&instance.guard, numbers.id);
    instance.writers.begin();
    connection.send(&ToGuest::Spawn(Box::new(spawn)))?;
    let mut run = RunState {
        connection,
        numbers,
        mark,
        own_peak,
        timeout,
        limit: output_bytes,
        kill_on_overflow: instance.limits.output_overflow == OutputOverflow::Kill && !terminal,
        events,
        stdout: Output::default(),
        stderr: Output::default(),
        killed: None,
        supervisor,
        waiting: Some((Event::Started, None)),
    };

    let feed = feed(connection, numbers.stdin, stdin);
    tokio::pin!(feed);
    let breach = instance.guard.breach(run.mark);
    tokio::pin!(breach);
    let mut fed = false;
    let mut guarded = true;
    let exit = loop {
        let events = run.events.clone();
        tokio::select! {
            // A slow reader of events delays the program's output, but nothing else.
            slot = event_slot(events.as_ref(), run.killed.is_some()), if run.waiting.is_some() => {
                run.deliver(slot);
            }
            incoming = inbox.recv(), if run.waiting.is_none() => match incoming {
                Some(Incoming::Data { channel, bytes }) => run.output(channel, bytes),
                Some(Incoming::End) => {}
                Some(Incoming::Message(FromGuest::Exited(exit))) => break exit,
                Some(Incoming::Message(FromGuest::SpawnFailed { step, errno, .. })) => {
                    route.answered();
                    instance.writers.end();
                    return Err(cannot_run(program, &step, errno));
                }
                Some(other) => {
                    let problem = format!("unexpected answer: {}", other.name());
                    return Err(instance.lost(Error::Protocol(problem)));
                }
                None => {
                    let cpu = cpu.filter(|_| concurrent.was_alone());
                    return Ok(run.lost(instance, begun, cpu).await);
                }
            },
            Some(signal) = signals.recv() => match signal {
                ExecSignal::Kill(reason) => run.kill(reason),
                ExecSignal::Posix(signal) => {
                    run.send(&ToGuest::Signal { id: numbers.id, signal });
                }
                ExecSignal::Resize(size) => {
                    let (rows, columns) = (size.rows, size.columns);
                    run.send(&ToGuest::Resize { id: numbers.id, rows, columns });
                }
            },
            () = &mut feed, if !fed => fed = true,
            reason = &mut breach, if guarded => {
                guarded = false;
                run.break_limit(reason);
            }
        }
    };
    route.answered();
    instance.writers.end();
    if instance.notifications.is_some() {
        // Notifications about this execution belong to its record.
        connection.notifications_processed().await;
    }
    let cpu = cpu.filter(|_| concurrent.was_alone());
    let cpu = cpu.and_then(|before| instance.guard.cpu_time()?.checked_sub(before));
    let mut outcome = run.outcome(instance, exit, begun);
    outcome.usage.cpu = outcome.usage.cpu.max(cpu.unwrap_or_default());
    if let Some(most) = instance.guard.most_cpus() {
        let possible = outcome.duration.mul_f64(most);
        outcome.usage.cpu = outcome.usage.cpu.min(possible);
    }
    Ok(outcome)
}

/// Announces the end of an execution, however it ended.
struct EndGuard<'a, G: Guard>(&'a G, u32);

impl<G: Guard> Drop for EndGuard<'_, G> {
    fn drop(&mut self) {
        self.0.ends(self.1);
    }
}

async fn prepare<G: Guard>(
    instance: &GuestInstance<G>,
    permit: &Permit,
    execution: &mut Execution,
    numbers: Numbers,
) -> Result<Spawn> {
    let limit = execution.output_bytes;
    let start_in = match &execution.work {
        Work::Command(_) if execution.cwd.is_none() => instance.start_in.clone(),
        _ => None,
    };
    let (scratch, beside, argv) = match &mut execution.work {
        Work::Command(argv) => (None, None, take(argv)),
        Work::Code {
            language,
            source,
            args,
        } => {
            let scratch = permit.execution().as_str();
            let interpreters = &instance.interpreters;
            let script = execution.script.as_deref();
            let (file, argv) =
                interpreters.command(*language, scratch, script, take(args), instance.watched)?;
            let base = brig_wire::Base::Run;
            files::put(
                &instance.connection,
                base,
                &file,
                0o644,
                &mut source.as_slice(),
            )
            .await?;
            let beside = language::beside(*language, script);
            (Some(scratch.to_owned()), beside, argv)
        }
    };
    // Variables of the execution replace those of the session.
    let mut env: Vec<(String, String)> = instance.env.clone();
    for (name, value) in take(&mut execution.env) {
        env.retain(|(other, _)| *other != name);
        env.push((name, value));
    }
    if let Some(first) = &instance.first_in_path {
        match env.iter_mut().find(|(name, _)| name == "PATH") {
            Some((_, path)) => *path = format!("{first}:{path}"),
            None => env.push(("PATH".into(), first.clone())),
        }
    }
    if execution.terminal.is_some() && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".into(), "xterm-256color".into()));
    }
    let (cwd, otherwise) = match (execution.cwd.take(), start_in) {
        (Some(cwd), _) if cwd.starts_with('/') => (cwd, None),
        (Some(cwd), _) => (format!("{}/{cwd}", instance.workspace), None),
        (None, Some(start_in)) => (start_in, Some(instance.workspace.clone())),
        (None, None) => (instance.workspace.clone(), None),
    };
    Ok(Spawn {
        id: numbers.id,
        argv,
        env: env
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        cwd,
        otherwise,
        stdin: (execution.stdin.is_some() || execution.terminal.is_some()).then_some(numbers.stdin),
        stdout: numbers.stdout,
        stderr: numbers.stderr,
        terminal: execution.terminal.map(|size| (size.rows, size.columns)),
        timeout: execution.timeout,
        output_limit: match (execution.terminal, instance.limits.output_overflow) {
            (Some(_), _) => u64::MAX,
            // One more byte, so that an overflow is noticed here.
            (None, OutputOverflow::Kill) => limit.saturating_add(1),
            // A reader of events gets all of it. Only what is kept has a limit.
            (None, _) if execution.uncut => u64::MAX,
            (None, _) => limit,
        },
        scratch,
        beside,
    })
}

/// Relays standard input until it ends.
async fn feed(connection: &Connection, channel: u32, stdin: Option<Stdin>) {
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
    // Fails only if the guest has exited, which is noticed where its answers are read.
    let _ = connection.send_end(channel);
}

/// Counts running executions, to know whether this one was ever concurrent with another.
struct Concurrency<'a> {
    running: &'a AtomicUsize,
    joined: &'a AtomicUsize,
    /// The number of this execution.
    number: usize,
    alone: bool,
}

impl<'a> Concurrency<'a> {
    fn enter(running: &'a AtomicUsize, joined: &'a AtomicUsize) -> Self {
        let alone = running.fetch_add(1, Ordering::SeqCst) == 0;
        let number = joined.fetch_add(1, Ordering::SeqCst) + 1;
        Self {
            running,
            joined,
            number,
            alone,
        }
    }

    /// Whether no other execution has run since this one started.
    fn was_alone(&self) -> bool {
        self.alone && self.joined.load(Ordering::SeqCst) == self.number
    }
}

impl Drop for Concurrency<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

struct RunState<'a> {
    connection: &'a Connection,
    numbers: Numbers,
    mark: Mark,
    /// Whether the peak of the whole instance is that of this execution.
    own_peak: bool,
    timeout: Duration,
    limit: u64,
    kill_on_overflow: bool,
    events: Option<mpsc::Sender<Event>>,
    stdout: Output,
    stderr: Output,
    killed: Option<KillReason>,
    /// Destroys the instance if a kill has no effect.
    supervisor: mpsc::UnboundedSender<ExecSignal>,
    /// An event for the reader, and the channel and length of its data, for which credit is granted when
    /// it was delivered.
    waiting: Option<(Event, Option<(u32, usize)>)>,
}

/// Resolves when an event can be delivered; `None` if there is no reader. The end of an execution does not
/// wait for a slow reader.
async fn event_slot(
    events: Option<&mpsc::Sender<Event>>,
    ending: bool,
) -> Option<mpsc::Permit<'_, Event>> {
    match events {
        Some(events) if ending => events.try_reserve().ok(),
        Some(events) => events.reserve().await.ok(),
        None => None,
    }
}

impl RunState<'_> {
    /// Delivers the waiting event, or drops it if the reader is gone, and grants its credit back.
    fn deliver(&mut self, slot: Option<mpsc::Permit<'_, Event>>) {
        let Some((event, taken)) = self.waiting.take() else {
            return;
        };
        match slot {
            Some(slot) => slot.send(event),
            None if self.killed.is_some() => {}
            None => self.events = None,
        }
        if let Some((channel, length)) = taken {
            // As in `send`.
            let _ = self.connection.grant(channel, length);
        }
    }

    /// Fails only if the guest has exited, which is noticed where its answers are read.
    fn send(&self, message: &ToGuest) {
        let _ = self.connection.send(message);
    }

    fn kill(&mut self, reason: KillReason) {
        if self.killed.is_none() {
            self.killed = Some(reason);
            self.send(&ToGuest::Kill {
                id: self.numbers.id,
            });
        }
    }

    /// Kills at once. The supervisor destroys the instance if that has no effect.
    fn break_limit(&mut self, reason: KillReason) {
        let _ = self.supervisor.send(ExecSignal::Kill(reason.clone()));
        self.kill(reason);
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
        // The byte that revealed the overflow is not delivered.
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
            self.break_limit(KillReason::Output { limit_bytes });
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
        // The first byte beyond the limit is the end, also of a program that ended before the kill came.
        let overflowed = matches!(self.killed, Some(KillReason::Output { .. }));
        let (exit_code, signal) = match exit.status {
            _ if overflowed => (128 + 9, Some(9)),
            status if status & 0x7f == 0 => ((status >> 8) & 0xff, None),
            status => (128 + (status & 0x7f), Some(status & 0x7f)),
        };
        let killed = match (self.killed.take(), signal) {
            (Some(reason), Some(9)) => Some(reason),
            // The guest was faster than the owner's timer.
            (None, Some(9)) if exit.out_of_time => Some(KillReason::Timeout {
                limit_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            }),
            // It exited by itself, maybe just before it was killed. If a child of a shell is killed, the
            // shell exits with a code.
            _ if exit_code != 0 => instance.guard.verdict(self.mark),
            _ => None,
        };
        let whole = self
            .own_peak
            .then(|| instance.guard.peak_memory())
            .flatten();
        let mut outcome = Outcome::exited(exit_code);
        outcome.signal = signal;
        outcome.stdout = self.stdout;
        outcome.stderr = self.stderr;
        outcome.duration = begun.elapsed();
        outcome.killed = killed;
        outcome.usage.cpu = Duration::from_micros(exit.cpu_microseconds);
        outcome.usage.peak_memory_bytes = exit.peak_memory_bytes.max(whole.unwrap_or(0));
        outcome
    }

    /// The guest has exited during the execution. If a limit or the caller ended it, that is the outcome;
    /// otherwise the outcome is what is known until now.
    async fn lost<G: Guard>(
        self,
        instance: &GuestInstance<G>,
        begun: Instant,
        cpu: Option<Duration>,
    ) -> Outcome {
        let killed = match self.killed {
            Some(killed) => Some(killed),
            None => instance.guard.loss(self.mark).await,
        };
        instance.guard.kill();
        let lost = match &killed {
            Some(_) => None,
            None => Some(self.connection.lost_reason()),
        };
        let used = cpu.and_then(|before| instance.guard.cpu_time()?.checked_sub(before));
        let mut outcome = match killed {
            Some(_) => Outcome::exited(128 + 9),
            None => Outcome::exited(NOT_KNOWN),
        };
        outcome.signal = killed.is_some().then_some(9);
        outcome.stdout = self.stdout;
        outcome.stderr = self.stderr;
        outcome.duration = begun.elapsed();
        outcome.killed = killed;
        outcome.lost = lost;
        outcome.usage.cpu = used.unwrap_or_default();
        outcome.usage.peak_memory_bytes = instance.guard.peak_memory().unwrap_or(0);
        outcome
    }
}

fn cannot_run(program: String, step: &str, errno: i32) -> Error {
    use rustix::io::Errno;
    let error = Errno::from_raw_os_error(errno);
    let (exit_code, problem) = match (step, error) {
        ("execute", Errno::NOENT | Errno::NOTDIR) => (127, "not found in the sandbox".to_owned()),
        ("execute", Errno::ACCESS | Errno::NOEXEC) => (126, error.to_string()),
        (step, Errno::AGAIN) => (125, format!("{step}: the process limit is reached")),
        (step, error) => (125, format!("{step}: {error}")),
    };
    Error::CannotRun {
        program,
        exit_code,
        problem,
    }
}
