//! A keeper is PID 1 of an execution's own namespace and the parent of its program. When the keeper
//! exits, the kernel kills everything that is left in that namespace. What does not depend on the
//! program is done in advance, so that one keeper can wait in reserve.
//!
//! In a container, the guest can't create namespaces. There a keeper is a child subreaper: it adopts
//! the orphans of its program, and the guest kills them ([`crate::process_tree`]).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_linux::clone::{self, Fork};
use brig_linux::process;
use brig_wire::{Confine, Hello, RootSource, Spawn};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::DumpableBehavior;

use crate::connectors::ListenerHandoff;
use crate::keeper_report::{Ended, KeeperReport};
use crate::pipe_key::PipeKey;
use crate::{Failure, Step, confine, exit, proc};

/// The program's ends of its pipes or terminal.
#[derive(Debug)]
pub(crate) struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A keeper that is prepared and waits for its program.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub pid: u32,
    /// Only with a namespace of its own. Otherwise, the end of `status` is its end.
    pub pidfd: Option<OwnedFd>,
    pub status: StatusPipe,
    /// The pipe that the program is sent over.
    spawn: OwnedFd,
    spawn_key: PipeKey,
}

/// The pipe for a keeper's report.
#[derive(Debug)]
pub(crate) struct StatusPipe {
    pub pipe: OwnedFd,
    pub key: PipeKey,
}

impl Keeper {
    /// If a filter notifies, its listener is sent over `handoff`.
    pub(crate) fn start(
        hello: &Hello,
        stdio: Stdio,
        handoff: ListenerHandoff<'_>,
    ) -> io::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (spawn_key, key) = (PipeKey::new()?, PipeKey::new()?);
        let ((status, status_inside), (spawn_inside, spawn)) = (pipe()?, pipe()?);
        // Where a program can open it, it can also take out what the guest was told is there.
        rustix::io::ioctl_fionbio(&status, true)?;
        let forked = match &hello.root {
            RootSource::Setup(_) => match clone::fork(clone::EXECUTION_NAMESPACES)? {
                Fork::Parent { pid, pidfd } => Some((pid, Some(pidfd))),
                Fork::Child => None,
            },
            RootSource::Container(_) => clone::fork_filtered()?.map(|pid| (pid, None)),
        };
        match forked {
            Some((pid, pidfd)) => Ok(Self {
                pid,
                pidfd,
                status: StatusPipe { pipe: status, key },
                spawn,
                spawn_key,
            }),
            None => {
                let pipe = status_inside;
                let status = StatusPipe { pipe, key };
                run_keeper(hello, &stdio, (spawn_inside, spawn_key), status, handoff)
            }
        }
    }

    /// Whether it can still be used.
    pub(crate) fn is_alive(&self) -> bool {
        let end = self.pidfd.as_ref().unwrap_or(&self.status.pipe);
        let mut ended = [PollFd::new(end, PollFlags::IN)];
        matches!(rustix::event::poll(&mut ended, Some(&NOW)), Ok(0))
    }

    /// Sends it the program to run. Blocks, but not for long: the keeper does nothing but read.
    pub(crate) fn run(self, spawn: &Spawn) -> io::Result<(u32, Option<OwnedFd>, StatusPipe)> {
        let bytes = brig_wire::to_bytes(spawn).map_err(io::Error::other)?;
        let bytes = self.spawn_key.marked(bytes);
        let mut pipe = File::from(self.spawn);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        // Fails if the keeper has failed or was killed, which its status pipe shows.
        let _ = pipe
            .write_all(&length.to_le_bytes())
            .and_then(|()| pipe.write_all(&bytes));
        Ok((self.pid, self.pidfd, self.status))
    }
}

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn run_keeper(
    hello: &Hello,
    stdio: &Stdio,
    (spawn, spawn_key): (OwnedFd, PipeKey),
    status: StatusPipe,
    handoff: ListenerHandoff<'_>,
) -> ! {
    let mut kept = vec![spawn.as_fd(), status.pipe.as_fd()];
    kept.extend(handoff.descriptors());
    let confine = &hello.confine;
    let begun = prepare(hello, stdio, &kept).and_then(|listener| {
        let spawn = read_spawn(spawn, &spawn_key)?;
        if let Some(listener) = listener {
            // Before the program is forked, which could otherwise answer its own calls.
            handoff.send(&listener, spawn.id)?;
            drop(listener);
            // The program must not inherit the sockets either.
            process::close_all_but(&[status.pipe.as_fd()]).step("close descriptors")?;
        }
        Ok((clone::fork_filtered().step("fork")?, spawn))
    });
    match begun {
        Ok((None, spawn)) => {
            let failure = become_program(confine, &spawn);
            fail(&status, failure)
        }
        Ok((Some(program), _)) => reap_until_exit(program, &status),
        Err(failure) => fail(&status, failure),
    }
}

fn read_spawn(pipe: OwnedFd, key: &PipeKey) -> Result<Spawn, Failure> {
    let mut pipe = File::from(pipe);
    let mut length = [0; 4];
    let mut read = || {
        pipe.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        pipe.read_exact(&mut bytes)?;
        let (bytes, mark) = bytes.split_last_chunk().ok_or(Errno::PROTO)?;
        if !key.accepts(bytes, mark) {
            return Err(Errno::PROTO.into());
        }
        brig_wire::from_bytes(bytes).map_err(io::Error::other)
    };
    read().step("read the request")
}

fn fail(status: &StatusPipe, failure: Failure) -> ! {
    let errno = failure.errno();
    let step = failure.step;
    let report = KeeperReport::Failed { step, errno };
    let _ = rustix::io::write(&status.pipe, &report.encode(&status.key));
    exit(127)
}

/// The order matters: /proc is mounted with capabilities, which are dropped before the filters, and
/// the filters are installed last, because they forbid most of what comes before.
fn prepare(
    hello: &Hello,
    stdio: &Stdio,
    kept: &[BorrowedFd<'_>],
) -> Result<Option<OwnedFd>, Failure> {
    rustix::stdio::dup2_stdin(&stdio.stdin).step("connect stdin")?;
    rustix::stdio::dup2_stdout(&stdio.stdout).step("connect stdout")?;
    rustix::stdio::dup2_stderr(&stdio.stderr).step("connect stderr")?;
    // A spare keeper may wait for long. A file that it had open for writing could not be executed
    // meanwhile (ETXTBSY).
    process::close_all_but(kept).step("close descriptors")?;
    match &hello.root {
        RootSource::Setup(setup) => proc::mount(setup)?,
        RootSource::Container(_) => adopt_orphans()?,
    }
    raise_oom_score(&hello.root)?;
    process::reset_signals().step("reset signals")?;
    new_keyring(&hello.root)?;
    if let RootSource::Setup(_) = &hello.root {
        // Through /proc/PID files, a process could change another that has just been started.
        proc::make_read_only()?;
        // In a container the guest has no capabilities.
        confine::drop_privileges()?;
    }
    let confine = &hello.confine;
    confine::rlimits(confine)?;
    // The program inherits the filters. Installing them once, in the keeper, saves time when the
    // program starts. The one that notifies is the last, because it forbids further filters.
    confine::seccomp(confine)?;
    confine::notify(confine)
}

/// gVisor does not support it. There the guest adopts orphans, and kills them when no execution is
/// left.
fn adopt_orphans() -> Result<(), Failure> {
    match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).step("adopt orphans"),
    }
}

fn new_keyring(root: &RootSource) -> Result<(), Failure> {
    let joined = process::new_session_keyring();
    match (root, joined.as_ref().err().and_then(Errno::from_io_error)) {
        // Engines forbid the call by seccomp. A container has no keys of the host's.
        (RootSource::Container(_), Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => Ok(()),
        _ => joined.step("join a new keyring"),
    }
}

/// Makes the OOM killer choose a program rather than the guest. The file can be written only while
/// this process is dumpable, which is safe: nothing untrusted runs in it yet.
fn raise_oom_score(root: &RootSource) -> Result<(), Failure> {
    // In a container, the score of the guest itself is 500.
    let score = match root {
        RootSource::Setup(_) => "500",
        RootSource::Container(_) => "1000",
    };
    let dumpable =
        |behavior| rustix::process::set_dumpable_behavior(behavior).step("change dumpability");
    dumpable(DumpableBehavior::Dumpable)?;
    std::fs::write("/proc/self/oom_score_adj", score).step("raise the OOM score")?;
    dumpable(DumpableBehavior::NotDumpable)
}

fn become_program(confine: &Confine, spawn: &Spawn) -> Failure {
    match try_become(confine, spawn) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn try_become(confine: &Confine, spawn: &Spawn) -> Result<std::convert::Infallible, Failure> {
    rustix::process::setsid().step("start a session")?;
    if spawn.terminal.is_some() {
        process::set_controlling_terminal(rustix::stdio::stdin()).step("take the terminal")?;
    } else if spawn.stdin.is_none() {
        rustix::stdio::dup2_stdin(null().step("open /dev/null")?).step("connect stdin")?;
    }
    match (rustix::process::chdir(&spawn.cwd), &spawn.otherwise) {
        (Err(_), Some(other)) => {
            rustix::process::chdir(other).step(format!("enter {other}"))?;
        }
        (entered, _) => entered.step(format!("enter {}", spawn.cwd))?,
    }
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

    // As `execvp` does: the first file that exists decides, but one without permission is skipped.
    let mut error = io::Error::from(Errno::NOENT);
    for program in candidates {
        let failed = process::exec(&program, &argv, &env);
        match Errno::from_io_error(&failed) {
            Some(Errno::NOENT | Errno::NOTDIR) => {}
            Some(Errno::ACCESS) => error = failed,
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
        .ok_or(Errno::NOENT);
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

/// Reaps children, also adopted ones, until the program itself has ended.
fn reap_until_exit(program: u32, status: &StatusPipe) -> ! {
    release_stdio();
    loop {
        match process::wait(None, true) {
            Ok(Some((pid, usage))) if pid == program => {
                let report = KeeperReport::Ended(reap_rest(usage.status));
                let _ = rustix::io::write(&status.pipe, &report.encode(&status.key));
                exit(0)
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => exit(1),
        }
    }
}

/// Kills and reaps what the program has left behind.
fn reap_rest(status: i32) -> Ended {
    // Orphans become children of this process, so when it has no child, nothing is left.
    let mut killed = false;
    let alone = loop {
        match process::wait(None, killed) {
            Ok(Some(_)) => {}
            // If the kernel killed them at the end of the namespace, their CPU time and memory would
            // not be counted. In a container this fails, and the guest kills them.
            Ok(None) if !killed && process::kill_all_others().is_ok() => killed = true,
            Ok(None) => break false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                break error.raw_os_error() == Some(Errno::CHILD.raw_os_error());
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

/// Closes the program's streams here, so that the guest sees their end when the program closes them.
fn release_stdio() {
    match null() {
        Ok(null) => {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        Err(_) => exit(1),
    }
}

fn null() -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
}
