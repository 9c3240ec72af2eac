//! How much Brig says on stderr: `-q`, `--verbose` and `BRIG_LOG`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use crate::failure::{self, Failure};

/// The variable for commands without these flags. A flag takes precedence.
const SETTING: &str = "BRIG_LOG";

/// What is shown. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Only errors.
    Error,
    Warn,
    /// Also the launch summary, denials, notes and hints.
    Info,
    /// Also the plan and the time of each step.
    Debug,
}

const LEVELS: [(&str, Level); 4] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
];

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static STARTED: OnceLock<Instant> = OnceLock::new();

/// Reads `BRIG_LOG`, and starts the clock of `--verbose`.
pub(crate) fn init() -> Result<(), Failure> {
    let _ = STARTED.set(Instant::now());
    let Some(text) = std::env::var_os(SETTING).filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let found = LEVELS.iter().find(|(name, _)| text == *name);
    let Some((_, level)) = found else {
        let text = text.to_string_lossy();
        return Err(Failure::usage(format!("{SETTING}={text} is not a level"))
            .with_hint("use error, warn, info or debug"));
    };
    set(*level);
    Ok(())
}

pub(crate) fn set(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

pub(crate) fn shows(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// A line of `--verbose`, with the time since Brig was started. The text is made only if it is shown.
pub(crate) fn debug(text: impl FnOnce() -> String) {
    if shows(Level::Debug) {
        let elapsed = STARTED.get().map_or(0.0, |at| at.elapsed().as_secs_f64());
        failure::debug(&format!("{:7.1} ms  {}", elapsed * 1000.0, text()));
    }
}
