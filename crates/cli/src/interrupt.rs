//! Signals that ask Brig to stop, or report a new size of the terminal.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP; but not those that were ignored when Brig was started (`nohup`,
/// background jobs of scripts).
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
}

impl Interrupts {
    pub(crate) fn new() -> std::io::Result<Self> {
        let ignored = ignored();
        let listen = |kind: SignalKind| {
            let bit = 1_u64 << (kind.as_raw_value() - 1);
            (ignored & bit == 0).then(|| signal(kind)).transpose()
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the next signal.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            () = receive(&mut self.interrupt) => SignalKind::interrupt().as_raw_value(),
            () = receive(&mut self.terminate) => SignalKind::terminate().as_raw_value(),
            () = receive(&mut self.hang_up) => SignalKind::hangup().as_raw_value(),
        }
    }
}

/// Reports changes of the terminal size, if enabled.
#[derive(Debug)]
pub(crate) struct Resizes(Option<Signal>);

impl Resizes {
    pub(crate) fn new(wanted: bool) -> std::io::Result<Self> {
        Ok(Self(
            wanted
                .then(|| signal(SignalKind::window_change()))
                .transpose()?,
        ))
    }

    pub(crate) async fn next(&mut self) {
        receive(&mut self.0).await;
    }
}

async fn receive(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => pending().await,
    }
}

/// The set of ignored signals, from `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
