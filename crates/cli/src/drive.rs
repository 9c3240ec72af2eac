//! From the start of an execution to its end: output, signals, the terminal.

use std::future::Future;

use brig_sandbox::{Error, Event, Report, Running};

use crate::exit;
use crate::failure::{self, Failure};
use crate::interrupt::{Interrupts, Resizes};
use crate::output::Display;
use crate::terminal::{self, RawMode};

/// How an execution meets the world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attachment {
    pub stdin: bool,
    pub terminal: bool,
    /// Show output as it comes; otherwise it is only in the report.
    pub show: bool,
}

#[derive(Debug)]
pub struct Finished {
    pub report: Report,
    pub exit: u8,
}

/// Starts and follows an execution. The first signal cancels it, the second one gives up on it.
pub async fn drive(
    start: impl Future<Output = Result<Running, Error>>,
    attachment: Attachment,
) -> Result<Finished, Failure> {
    let raw = if attachment.terminal && attachment.stdin {
        RawMode::enter().map_err(|error| terminal_failure(&error))?
    } else {
        None
    };
    // Started first: the handlers are set up while the kernel is busy with the sandbox.
    let mut start = Box::pin(start);
    let mut interrupts = None;
    let running = tokio::select! {
        biased;
        running = &mut start => running?,
        signal = first_signal(&mut interrupts) => return Err(Failure::interrupted(signal?)),
    };
    let interrupts = match interrupts {
        Some(interrupts) => interrupts,
        None => Interrupts::new().map_err(|error| signal_failure(&error))?,
    };
    let finished = follow(running, interrupts, attachment).await;
    let killed = match &finished {
        Ok(finished) => finished
            .report
            .outcome
            .as_ref()
            .is_some_and(|o| o.killed.is_some()),
        Err(_) => true,
    };
    if killed && attachment.terminal {
        terminal::tidy_up();
    }
    drop(raw);
    finished
}

async fn first_signal(interrupts: &mut Option<Interrupts>) -> Result<i32, Failure> {
    let new = Interrupts::new().map_err(|error| signal_failure(&error))?;
    Ok(interrupts.insert(new).next().await)
}

async fn follow(
    mut running: Running,
    mut interrupts: Interrupts,
    attachment: Attachment,
) -> Result<Finished, Failure> {
    let mut resizes = Resizes::new(attachment.terminal).map_err(|error| signal_failure(&error))?;
    let mut display = attachment.show.then(|| Display::new(attachment.terminal));
    let mut cancelled_by = None;
    let mut broken_pipe = false;
    let mut ended = false;
    loop {
        let busy = display.as_ref().is_some_and(|display| !display.is_idle());
        if ended && !busy {
            break;
        }
        tokio::select! {
            signal = interrupts.next() => {
                if cancelled_by.replace(signal).is_some() {
                    return Err(Failure::interrupted(signal));
                }
                running.cancel();
            }
            () = resizes.next() => running.resize(terminal::size()),
            written = advance(&mut display), if busy => {
                if written.is_err() {
                    // Events are still taken, so that the execution can come to its end.
                    broken_pipe = true;
                    display = None;
                    running.cancel();
                }
            }
            event = running.next_event(), if !ended && !busy => match event {
                Some(event) => show(&mut display, event),
                None => {
                    ended = true;
                    display.iter_mut().for_each(Display::finish);
                }
            },
        }
    }
    let report = tokio::select! {
        biased;
        report = running.wait() => report?,
        signal = interrupts.next(), if cancelled_by.is_some() => {
            return Err(Failure::interrupted(signal));
        }
    };
    let exit = match &report.outcome {
        _ if broken_pipe => exit::of_broken_pipe(),
        Some(outcome) => exit::of_outcome(outcome, cancelled_by),
        None => exit::FAILED,
    };
    Ok(Finished { report, exit })
}

async fn advance(display: &mut Option<Display>) -> std::io::Result<()> {
    match display {
        Some(display) => display.advance().await,
        None => Ok(()),
    }
}

fn show(display: &mut Option<Display>, event: Event) {
    match (display, event) {
        (Some(display), Event::Stdout(bytes)) => display.stdout(bytes),
        (Some(display), Event::Stderr(bytes)) => display.stderr(bytes),
        (_, Event::Started) | (None, _) => {}
    }
}

fn signal_failure(error: &std::io::Error) -> Failure {
    Failure::new(
        "io.failed",
        format!("cannot listen for signals: {}", failure::describe(error)),
    )
}

fn terminal_failure(error: &std::io::Error) -> Failure {
    Failure::new(
        "io.failed",
        format!("cannot set up the terminal: {}", failure::describe(error)),
    )
}
