//! Runs an execution to its end: output, signals, the terminal.

use std::future::Future;
use std::io::{ErrorKind, IsTerminal};
use std::time::Duration;

use brig_audit::Record;
use brig_reason::ReasonCode;
use brig_sandbox::request::Work;
use brig_sandbox::{Error, Event, ExecutionHandle, Limit, Outcome, Report, Request, SessionConfig};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::approvals::SCREEN;
use crate::args::JsonForm;
use crate::exit::{self, LimitOrigins};
use crate::failure::{self, Failure};
use crate::interrupt::{Interrupts, Resizes};
use crate::log;
use crate::output::Display;
use crate::recorder;
use crate::terminal::{self, RawMode};

/// The default timeout with a terminal, where a person decides when it ends, and of agents, which work for
/// hours: the longest that there is.
pub(crate) const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a program may take to end after a signal that asks it to.
const GRACE: Duration = Duration::from_secs(5);
/// The same after SIGPIPE: nobody reads its output any more.
const UNREAD_GRACE: Duration = Duration::from_secs(1);

/// How an execution is connected to the caller's standard streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attachment {
    pub stdin: bool,
    pub terminal: bool,
    pub show: Show,
}

/// What becomes of the program's output while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Show {
    /// It is written to our own streams.
    #[default]
    Streams,
    /// Each piece is a line of JSON on stdout.
    Lines,
    /// It is only in the report.
    Nothing,
}

impl Attachment {
    /// Refuses a terminal without one to read from: the program would wait for keys that never come.
    pub(crate) fn new(
        stdin: bool,
        terminal: bool,
        json: Option<JsonForm>,
    ) -> Result<Self, Failure> {
        if stdin && terminal && !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                ReasonCode::InputTerminal,
                "standard input is not a terminal",
            )
            .with_hint("leave out -t to pass input through a pipe"));
        }
        Ok(Self {
            stdin,
            terminal,
            show: match json {
                None => Show::Streams,
                Some(JsonForm::Stream) => Show::Lines,
                Some(JsonForm::Object) => Show::Nothing,
            },
        })
    }

    /// Whether the program reads the keys of our terminal.
    pub(crate) fn reads_terminal(self) -> bool {
        self.terminal || (self.stdin && std::io::stdin().is_terminal())
    }

    /// A request with these streams. Variables in `env` override our own `TERM`.
    pub(crate) fn request(
        self,
        work: Work,
        env: &[(String, String)],
        cwd: Option<&String>,
    ) -> Request {
        let mut request = Request::new(work);
        request.env = env.to_vec();
        request.cwd = cwd.cloned();
        // Output that is only reported is not streamed, and the rest is dropped where it is written.
        request.stream = self.show != Show::Nothing;
        if self.stdin {
            request.stdin = Some(Box::new(tokio::io::stdin()));
        }
        if self.terminal {
            request.terminal = Some(terminal::size());
            if let Ok(kind) = std::env::var("TERM") {
                request.env.insert(0, ("TERM".into(), kind));
            }
        }
        request
    }

    /// Raises the default timeout for a terminal.
    pub(crate) fn set_timeout(self, config: &mut SessionConfig) {
        if self.terminal {
            default_to_no_timeout(config);
        }
    }
}

/// A timeout that was asked for stays, and a policy may set one.
pub(crate) fn default_to_no_timeout(config: &mut SessionConfig) {
    if !config.limits.timeout.asked {
        config.limits.timeout = Limit::default_of(INTERACTIVE_TIMEOUT);
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub report: Report,
    pub exit: u8,
    /// The stream that was truncated, because a policy limits it.
    pub truncated: Option<Truncated>,
    /// The reader of our stdout is gone, so nothing is left to be said about the end.
    pub unread: bool,
    /// Whether stderr ends within a line.
    pub within_line: bool,
    /// Set by who knows the config.
    pub limits: LimitOrigins,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncated {
    pub name: &'static str,
    pub shown: u64,
    pub total: u64,
}

/// Starts an execution and waits for it. The first signal is passed on to the program, which may take
/// some time to end. The second one ends it at once, the third stops waiting.
pub(crate) async fn drive(
    start: impl Future<Output = Result<ExecutionHandle, Error>>,
    attachment: Attachment,
) -> Result<Finished, Failure> {
    let raw = if attachment.terminal && attachment.stdin {
        RawMode::enter().map_err(|error| terminal_failure(&error))?
    } else {
        None
    };
    let attempts = match attachment.show {
        Show::Lines => recorder::attempts(),
        Show::Streams | Show::Nothing => unbounded_channel().1,
    };
    // Started first: the handlers are set up while the kernel is busy with the sandbox.
    let mut start = Box::pin(start);
    let mut interrupts = None;
    let running = tokio::select! {
        biased;
        running = &mut start => running?,
        signal = first_signal(&mut interrupts) => return Err(Failure::interrupted(signal?)),
    };
    log::debug(|| format!("started execution {}", running.id()));
    let interrupts = match interrupts {
        Some(interrupts) => interrupts,
        None => Interrupts::new().map_err(|error| signal_failure(&error))?,
    };
    let finished = follow(running, interrupts, attachment, attempts).await;
    log::debug(|| "ended, and recorded".into());
    let killed = match &finished {
        Ok(finished) => finished.report.outcome.killed.is_some(),
        Err(_) => true,
    };
    if killed && attachment.terminal {
        terminal::reset();
    }
    drop(raw);
    finished
}

async fn first_signal(interrupts: &mut Option<Interrupts>) -> Result<i32, Failure> {
    let new = Interrupts::new().map_err(|error| signal_failure(&error))?;
    Ok(interrupts.insert(new).next().await)
}

async fn follow(
    mut running: ExecutionHandle,
    mut interrupts: Interrupts,
    attachment: Attachment,
    mut attempts: UnboundedReceiver<Record>,
) -> Result<Finished, Failure> {
    let mut resizes = Resizes::new(attachment.terminal).map_err(|error| signal_failure(&error))?;
    let mut display = match attachment.show {
        Show::Streams => Some(Display::new(attachment.terminal)),
        Show::Lines => Some(Display::lines(running.id())),
        Show::Nothing => None,
    };
    let mut stop = Stop::default();
    let mut unwritten = None;
    let mut ended = false;
    let mut shown = (0, 0);
    loop {
        let busy = display.as_ref().is_some_and(|display| !display.is_idle());
        if ended && !busy {
            match attempts.try_recv() {
                Ok(record) => display
                    .iter_mut()
                    .for_each(|display| display.attempt(&record)),
                Err(_) => break,
            }
            continue;
        }
        tokio::select! {
            signal = interrupts.next() => {
                stop.interrupt(signal, &running)?;
                if stop.ends_at_once() {
                    // Nor is anyone waited for who does not read.
                    display = None;
                }
            }
            () = stop.grace() => running.cancel(),
            () = resizes.next() => running.resize(terminal::size()),
            written = advance(&mut display), if busy => {
                if let Err(error) = written {
                    // Events are still received, so that the execution can end.
                    stop.unwritten(&error, &running);
                    unwritten = Some(error);
                    display = None;
                }
            }
            Some(record) = attempts.recv(), if !busy => {
                display.iter_mut().for_each(|display| display.attempt(&record));
            }
            event = running.next_event(), if !ended && !busy => match event {
                Some(event) => {
                    count(&mut shown, &event);
                    show(&mut display, event);
                }
                None => {
                    ended = true;
                    display.iter_mut().for_each(Display::finish);
                }
            },
        }
    }
    let within_line = display.as_ref().is_some_and(Display::within_line);
    let report = loop {
        tokio::select! {
            biased;
            report = running.report() => break report?,
            signal = interrupts.next() => stop.interrupt(signal, &running)?,
            () = stop.grace() => running.cancel(),
        }
    };
    let outcome = &report.outcome;
    let cut_off = stop.ends_at_once() || unwritten.is_some();
    let shows = attachment.show != Show::Nothing;
    let truncated = (shows && !attachment.terminal && outcome.killed.is_none())
        .then(|| truncated(outcome, shown))
        .flatten()
        .filter(|_| !cut_off);
    let stderr_cut = display.as_ref().is_some_and(Display::stderr_cut);
    let unread = (unwritten.as_ref()).is_some_and(|error| error.kind() == ErrorKind::BrokenPipe);
    let exit = match unwritten {
        Some(_) if unread => exit::of_broken_pipe(),
        Some(error) => return Err(failure::unwritten(&error)),
        None => match exit::of_outcome(outcome, stop.signal) {
            0 if truncated.is_some() => exit::LIMIT,
            // There is no stream left to report it on.
            0 if stderr_cut => exit::FAILED,
            code => code,
        },
    };
    Ok(Finished {
        report,
        exit,
        truncated,
        unread,
        within_line,
        limits: LimitOrigins::default(),
    })
}

/// How far the end of an execution was asked for.
#[derive(Debug, Default)]
struct Stop {
    /// The first signal that asked Brig to stop.
    signal: Option<i32>,
    signals: u32,
    /// When it is ended if it has not ended by itself.
    at: Option<Instant>,
}

impl Stop {
    fn interrupt(&mut self, signal: i32, running: &ExecutionHandle) -> Result<(), Failure> {
        self.signal.get_or_insert(signal);
        self.signals += 1;
        match self.signals {
            1 => {
                running.signal(signal);
                self.at = Some(Instant::now() + GRACE);
            }
            2 => {
                running.cancel();
                self.at = None;
            }
            _ => return Err(Failure::interrupted(signal)),
        }
        Ok(())
    }

    /// If the reader is gone, the program gets the signal that it would get without Brig.
    fn unwritten(&mut self, error: &std::io::Error, running: &ExecutionHandle) {
        if error.kind() == ErrorKind::BrokenPipe {
            running.signal(exit::SIGPIPE);
            self.at.get_or_insert(Instant::now() + UNREAD_GRACE);
        } else {
            running.cancel();
        }
    }

    fn ends_at_once(&self) -> bool {
        self.signals > 1
    }

    /// Returns once, when the grace period is over.
    async fn grace(&mut self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.at = None;
    }
}

fn count(shown: &mut (u64, u64), event: &Event) {
    match event {
        Event::Stdout(bytes) => shown.0 += bytes.len() as u64,
        Event::Stderr(bytes) => shown.1 += bytes.len() as u64,
        _ => {}
    }
}

fn truncated(outcome: &Outcome, shown: (u64, u64)) -> Option<Truncated> {
    let streams = [
        ("stdout", shown.0, outcome.stdout.total),
        ("stderr", shown.1, outcome.stderr.total),
    ];
    let mut all = streams
        .map(|(name, shown, total)| Truncated { name, shown, total })
        .into_iter();
    all.find(|stream| stream.shown < stream.total)
}

async fn advance(display: &mut Option<Display>) -> std::io::Result<()> {
    match display {
        Some(display) => {
            // Not into a question that is open on the terminal.
            let _screen = SCREEN.lock().await;
            display.advance().await
        }
        None => Ok(()),
    }
}

fn show(display: &mut Option<Display>, event: Event) {
    match (display, event) {
        (Some(display), Event::Stdout(bytes)) => display.stdout(bytes),
        (Some(display), Event::Stderr(bytes)) => display.stderr(bytes),
        _ => {}
    }
}

fn signal_failure(error: &std::io::Error) -> Failure {
    Failure::new(
        ReasonCode::IoFailed,
        format!("cannot listen for signals: {}", failure::describe(error)),
    )
}

fn terminal_failure(error: &std::io::Error) -> Failure {
    Failure::new(
        ReasonCode::IoFailed,
        format!("cannot set up the terminal: {}", failure::describe(error)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_that_was_asked_for_stays() {
        let mut config = SessionConfig::default();
        default_to_no_timeout(&mut config);
        assert_eq!(
            config.limits.timeout,
            Limit::default_of(INTERACTIVE_TIMEOUT)
        );
        let asked = Limit::asked(Duration::from_secs(1));
        config.limits.timeout = asked;
        default_to_no_timeout(&mut config);
        assert_eq!(config.limits.timeout, asked);
    }
}
