//! How an execution ended, as the script in the sandbox says it.

use std::time::Duration;

use brig_sandbox::Error;
use brig_sandbox::request::Work;

use crate::helper;

/// What the script wrote at the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub code: i32,
    pub stdout: u64,
    pub stderr: u64,
    /// Why it was ended, or could not start.
    pub why: String,
    pub cpu: Duration,
}

impl End {
    /// `CODE BYTES BYTES [WHY]`, then what `times` of the shell prints.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut words = lines.next()?.split_whitespace();
        let code = words
            .next()?
            .parse()
            .ok()
            .filter(|code| (0..256).contains(code))?;
        let stdout = words.next()?.parse().ok()?;
        let stderr = words.next()?.parse().ok()?;
        let why = words.next().unwrap_or_default().to_owned();
        let children = lines.nth(1).unwrap_or_default();
        let cpu = children.split_whitespace().filter_map(time).sum();
        Some(Self {
            code,
            stdout,
            stderr,
            why,
            cpu,
        })
    }

    pub(crate) fn cannot_run(&self, work: &Work) -> Option<Error> {
        let problem = match self.why.as_str() {
            helper::NO_DIRECTORY => "its directory does not exist",
            helper::NOT_FOUND => "not found",
            helper::NOT_EXECUTABLE => "it is not an executable file",
            _ => return None,
        };
        Some(match work {
            Work::Code { language, .. } if self.why == helper::NOT_FOUND => Error::NoInterpreter {
                language: language.name(),
                problem: "the disk image does not have it".into(),
            },
            Work::Code { language, .. } => Error::CannotRun {
                program: language.name().into(),
                exit_code: self.code,
                problem: problem.into(),
            },
            Work::Command(argv) => Error::CannotRun {
                program: argv.first().cloned().unwrap_or_default(),
                exit_code: self.code,
                problem: problem.into(),
            },
        })
    }
}

/// As shells print it: `0m1.23s`.
fn time(text: &str) -> Option<Duration> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    let minutes: u64 = minutes.parse().ok()?;
    let seconds: f64 = seconds.parse().ok()?;
    let seconds = Duration::try_from_secs_f64(seconds).ok()?;
    Duration::from_secs(minutes.checked_mul(60)?).checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_read_as_the_script_writes_it() {
        let text = "3 10 20 disk\n0m0.000s 0m0.010s\n1m0.500s 0m0.250s\n";
        let end = End::parse(text).expect("an end");
        assert_eq!((end.code, end.stdout, end.stderr), (3, 10, 20));
        assert_eq!(end.why, "disk");
        assert_eq!(end.cpu, Duration::from_millis(60_750));
        assert!(End::parse("0 0 0 \n").is_some(), "without times");
    }

    #[test]
    fn a_missing_exit_code_is_no_success() {
        for bad in ["", "\n", "x 0 0", "0", "0 1", "256 0 0", "-1 0 0", "0 -1 0"] {
            assert_eq!(End::parse(bad), None, "{bad:?}");
        }
    }
}
