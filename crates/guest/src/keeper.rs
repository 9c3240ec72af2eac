//! One execution: a keeper, process 1 of a namespace of its own, and the program under it. When
//! the keeper ends, the kernel ends everything that is left in that namespace.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use brig_linux::clone::{self, Fork};
use brig_linux::process;
use brig_wire::{Confine, Setup, Spawn};

use rustix::process::DumpableBehavior;

use crate::{Failure, Step, confine, exit, proc};

/// The ends of the pipes (or the terminal) that the program gets.
#[derive(Debug)]
pub struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub terminal: bool,
}

/// What is said over the status pipe, once per execution.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// The program ended by itself.
    Ended(Ended),
    /// The program was never started.
    Failed { step: String, errno: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As of `waitpid`.
    pub status: i32,
    /// Nothing else is left in the namespace, so there is no need to wait for its end.
    pub alone: bool,
    pub cpu_microseconds: u64,
    pub peak_memory_bytes: u64,
}

impl Report {
    fn encode(&self) -> Vec<u8> {
        match self {
            Report::Ended(ended) => [
                &[b'X'][..],
                &ended.status.to_le_bytes(),
                &[u8::from(ended.alone)],
                &ended.cpu_microseconds.to_le_bytes(),
                &ended.peak_memory_bytes.to_le_bytes(),
            ]
            .concat(),
            // The keeper then reports the end of the child that failed, and both may be read at
            // once: mark where this one ends.
            Report::Failed { step, errno } => {
                [&[b'E'][..], &errno.to_le_bytes(), step.as_bytes(), &[0]].concat()
            }
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let number = i32::from_le_bytes(*number);
        match tag {
            b'X' => {
                let (alone, rest) = rest.split_first()?;
                let (cpu, rest) = rest.split_first_chunk::<8>()?;
                let (peak, _) = rest.split_first_chunk::<8>()?;
                Some(Report::Ended(Ended {
                    status: number,
                    alone: *alone == 1,
                    cpu_microseconds: u64::from_le_bytes(*cpu),
                    peak_memory_bytes: u64::from_le_bytes(*peak),
                }))
            }
            b'E' => {
                let step = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                Some(Report::Failed {
                    step: String::from_utf8_lossy(step).into_owned(),
                    errno: number,
                })
            }
            _ => None,
        }
    }
}

/// Starts a keeper and returns its descriptor and number.
pub fn start(
    confine: &Confine,
    setup: Option<&Setup>,
    spawn: &Spawn,
    stdio: Stdio,
    status: OwnedFd,
) -> io::Result<(u32, OwnedFd)> {
    match clone::fork(clone::EXECUTION_NAMESPACES)? {
        Fork::Parent { pid, pidfd } => Ok((pid, pidfd)),
        Fork::Child => keep(confine, setup, spawn, stdio, status),
    }
}

fn keep(
    confine: &Confine,
    setup: Option<&Setup>,
    spawn: &Spawn,
    stdio: Stdio,
    status: OwnedFd,
) -> ! {
    match prepare(confine, setup, &stdio).and_then(|()| clone::fork_filtered().step("fork")) {
        Ok(None) => {
            let failure = become_program(confine, spawn, &stdio);
            fail(&status, failure)
        }
        Ok(Some(program)) => watch(program, status),
        Err(failure) => fail(&status, failure),
    }
}

fn fail(status: &OwnedFd, failure: Failure) -> ! {
    let errno = failure.errno();
    let _ = rustix::io::write(
        status,
        &Report::Failed {
            step: failure.step,
            errno,
        }
        .encode(),
    );
    exit(127)
}

fn prepare(confine: &Confine, setup: Option<&Setup>, stdio: &Stdio) -> Result<(), Failure> {
    if let Some(setup) = setup {
        proc::mount(setup)?;
    }
    rustix::stdio::dup2_stdin(&stdio.stdin).step("connect stdin")?;
    rustix::stdio::dup2_stdout(&stdio.stdout).step("connect stdout")?;
    rustix::stdio::dup2_stderr(&stdio.stderr).step("connect stderr")?;
    volunteer_for_oom()?;
    process::reset_signals().step("reset signals")?;
    process::new_session_keyring().step("join a new keyring")?;
    confine::drop_privileges()?;
    confine::rlimits(confine)?;
    // The keeper is under the filter too, and one installation serves both.
    confine::seccomp(confine)
}

/// When memory runs out, the kernel takes a program rather than the guest. The file is ours only
/// while we are dumpable, and nothing untrusted runs here yet.
fn volunteer_for_oom() -> Result<(), Failure> {
    let dumpable =
        |behavior| rustix::process::set_dumpable_behavior(behavior).step("change dumpability");
    dumpable(DumpableBehavior::Dumpable)?;
    std::fs::write("/proc/self/oom_score_adj", "500").step("raise the OOM score")?;
    dumpable(DumpableBehavior::NotDumpable)
}

fn become_program(confine: &Confine, spawn: &Spawn, stdio: &Stdio) -> Failure {
    match try_become(confine, spawn, stdio) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn try_become(
    confine: &Confine,
    spawn: &Spawn,
    stdio: &Stdio,
) -> Result<std::convert::Infallible, Failure> {
    rustix::process::setsid().step("start a session")?;
    if stdio.terminal {
        process::set_controlling_terminal(rustix::stdio::stdin()).step("take the terminal")?;
    }
    rustix::process::chdir(&spawn.cwd).step(format!("enter {}", spawn.cwd))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let strings = |texts: &[String]| -> Result<Vec<CString>, Failure> {
        texts
            .iter()
            .map(|t| {
                CString::new(t.as_str())
                    .map_err(io::Error::other)
                    .step("read arguments")
            })
            .collect()
    };
    let (argv, env) = (strings(&spawn.argv)?, strings(&spawn.env)?);
    let candidates = candidates(&spawn.argv, &spawn.env)?;
    confine::landlock(confine)?;

    // As a shell does: the first one that exists decides, but a forbidden one is passed over.
    let mut error = io::Error::from(rustix::io::Errno::NOENT);
    for program in candidates {
        let failed = process::exec(&program, &argv, &env);
        match rustix::io::Errno::from_io_error(&failed) {
            Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Some(rustix::io::Errno::ACCESS) => error = failed,
            _ => {
                error = failed;
                break;
            }
        }
    }
    Err(error).step("execute")
}

fn candidates(argv: &[String], env: &[String]) -> Result<Vec<CString>, Failure> {
    let name = argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or(rustix::io::Errno::NOENT);
    let name = name.step("execute")?;
    let path = env
        .iter()
        .find_map(|line| line.strip_prefix("PATH="))
        .unwrap_or_default();
    let paths: Vec<String> = if name.contains('/') {
        vec![name.clone()]
    } else {
        path.split(':')
            .filter(|folder| !folder.is_empty())
            .map(|f| format!("{f}/{name}"))
            .collect()
    };
    paths
        .into_iter()
        .map(|path| CString::new(path).map_err(io::Error::other).step("execute"))
        .collect()
}

/// Reaps whatever is left to this process until the program itself has ended.
fn watch(program: u32, status: OwnedFd) -> ! {
    let Ok(status) = process::close_all_but(status) else {
        exit(1)
    };
    release_stdio();
    loop {
        match process::wait(None, true) {
            Ok(Some((pid, usage))) if pid == program => {
                let report = Report::Ended(ended(usage.status));
                let _ = rustix::io::write(&status, &report.encode());
                exit(0)
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => exit(1),
        }
    }
}

fn ended(status: i32) -> Ended {
    // Every process of the namespace is a descendant, and orphans become children of this one.
    let alone = loop {
        match process::wait(None, false) {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(error) => {
                break error.raw_os_error() == Some(rustix::io::Errno::CHILD.raw_os_error());
            }
        }
    };
    let usage = process::children_usage();
    Ended {
        status,
        alone,
        cpu_microseconds: usage.cpu_microseconds,
        peak_memory_bytes: usage.peak_memory_bytes,
    }
}

/// Lets go of the program's streams, so that their ends are seen when the program closes them.
fn release_stdio() {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    match null {
        Ok(null) => {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        Err(_) => exit(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_not_confused_with_the_end_that_follows_it() {
        let failed = Report::Failed {
            step: "execute".into(),
            errno: 2,
        };
        let ended = Report::Ended(Ended {
            status: 127 << 8,
            alone: true,
            cpu_microseconds: 100,
            peak_memory_bytes: 4096,
        });
        let both = [failed.encode(), ended.encode()].concat();
        assert_eq!(Report::decode(&both), Some(failed));
        assert_eq!(Report::decode(&ended.encode()), Some(ended));
    }
}
