//! `kill -9` of the command line at random moments.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use brig_testing::descendants;

use crate::census::Watch;
use crate::random::Random;

/// Longer than a whole short run, so that every stage of one is met.
const LATEST: Duration = Duration::from_millis(100);
/// A tree with children of its own, one of them in a session of its own, that would stay for long.
const TREE: &str = "sleep 300 & setsid sleep 300 & echo x >kept; sleep 300";
const SESSION: &str = "soak-kill";

pub(crate) fn run(kills: usize, brig: &Path, seed: u64) -> Result<String, String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let watch = Watch::new();
    let brig = Brig {
        program: brig,
        home: home.path(),
        watch: &watch,
    };
    let mut random = Random::new(seed);
    // So that the folders of the state are there before they are counted.
    brig.finish(&["session", "create", SESSION])?;
    brig.finish(&["session", "exec", SESSION, "--", "/bin/true"])?;
    brig.finish(&["session", "destroy", SESSION])?;
    let before = watch.take();

    let mut alive = 0;
    for number in 0..kills {
        let delay = Duration::from_micros(
            random.below(u64::try_from(LATEST.as_micros()).unwrap_or(u64::MAX)),
        );
        let in_session = number % 2 == 1;
        let mut child = if in_session {
            brig.finish(&["session", "create", SESSION])?;
            brig.start(&["session", "exec", SESSION, "--", "/bin/sh", "-c", TREE])?
        } else {
            brig.start(&["run", "--", "/bin/sh", "-c", TREE])?
        };
        sleep(delay);
        if child
            .try_wait()
            .map_err(|error| error.to_string())?
            .is_some()
        {
            return Err(format!("kill {number}: brig ended by itself"));
        }
        // Itself and a guest at least: it was hit with a sandbox alive.
        alive += usize::from(descendants().len() >= 2);
        child.kill().map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        // The next start works, sweeps, and the session is still a session.
        brig.finish(&["run", "--", "/bin/true"])
            .map_err(|why| format!("kill {number}: {why}"))?;
        if in_session {
            let next = brig.finish(&["session", "exec", SESSION, "--", "/bin/true"]);
            next.map_err(|why| format!("kill {number}: {why}"))?;
            brig.finish(&["session", "destroy", SESSION])?;
        }
        watch
            .settles(&before)
            .map_err(|why| format!("kill {number} after {} us: {why}", delay.as_micros()))?;
    }
    if alive == 0 {
        return Err("no kill met a sandbox that was alive".into());
    }
    Ok(format!(
        "{kills} times, {alive} of them with a sandbox alive, nothing left after the next start"
    ))
}

struct Brig<'a> {
    program: &'a Path,
    home: &'a Path,
    watch: &'a Watch,
}

impl Brig<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(args)
            .env("HOME", self.home)
            .env("XDG_STATE_HOME", self.home.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn start(&self, args: &[&str]) -> Result<Child, String> {
        self.spawn(self.command(args).stderr(Stdio::null()))
    }

    fn finish(&self, args: &[&str]) -> Result<(), String> {
        let child = self.spawn(self.command(args).stderr(Stdio::piped()))?;
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "`brig {}` ended with {}: {}",
            args.join(" "),
            output.status,
            said.trim()
        ))
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, String> {
        let child = command.spawn().map_err(|error| error.to_string())?;
        self.watch.add(child.id());
        Ok(child)
    }
}
