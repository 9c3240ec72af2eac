//! One execution: a keeper, process 1 of a namespace of its own, and the program under it. When
//! the keeper ends, the kernel ends everything that is left in that namespace. What does not
//! depend on the program is done before it is known, so that one keeper can wait in reserve.
//!
//! In a container there are no namespaces to be had: there a keeper adopts what its program leaves
//! behind, and the guest ends it ([`crate::trees`]).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_linux::clone::{self, Fork};
use brig_linux::process;
use brig_wire::{Confine, Hello, Place, Spawn};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::DumpableBehavior;

use crate::{Failure, Step, confine, exit, proc};

/// The ends of the pipes (or the terminal) that the program gets.
#[derive(Debug)]
pub struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
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

/// A keeper that has everything ready and waits to be told its program.
#[derive(Debug)]
pub struct Keeper {
    pub pid: u32,
    /// Where it has a namespace of its own. Elsewhere, the end of `status` is its end.
    pub pidfd: Option<OwnedFd>,
    /// Where it says how its program fared.
    pub status: OwnedFd,
    orders: OwnedFd,
}

impl Keeper {
    /// With a filter that asks outside, whoever is to be asked is handed out over `handoff`.
    pub fn start(hello: &Hello, stdio: Stdio, handoff: Option<&OwnedFd>) -> io::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let ((status, status_inside), (orders_inside, orders)) = (pipe()?, pipe()?);
        let forked = match &hello.place {
            Place::Own(_) => match clone::fork(clone::EXECUTION_NAMESPACES)? {
                Fork::Parent { pid, pidfd } => Some((pid, Some(pidfd))),
                Fork::Child => None,
            },
            Place::Container(_) => clone::fork_filtered()?.map(|pid| (pid, None)),
        };
        match forked {
            Some((pid, pidfd)) => Ok(Self {
                pid,
                pidfd,
                status,
                orders,
            }),
            None => keep(hello, &stdio, orders_inside, status_inside, handoff),
        }
    }

    /// Whether it can still be told anything.
    pub fn is_alive(&self) -> bool {
        let end = self.pidfd.as_ref().unwrap_or(&self.status);
        let mut ended = [PollFd::new(end, PollFlags::IN)];
        matches!(rustix::event::poll(&mut ended, Some(&NOW)), Ok(0))
    }

    /// Tells it what to run. Blocks until it has heard: it does nothing but listen.
    pub fn order(self, spawn: &Spawn) -> io::Result<(u32, Option<OwnedFd>, OwnedFd)> {
        let bytes = brig_wire::to_bytes(spawn).map_err(io::Error::other)?;
        let mut orders = File::from(self.orders);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        // One that has failed or was killed does not listen; what became of it is read elsewhere.
        let _ = orders
            .write_all(&length.to_le_bytes())
            .and_then(|()| orders.write_all(&bytes));
        Ok((self.pid, self.pidfd, self.status))
    }
}

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn keep(
    hello: &Hello,
    stdio: &Stdio,
    orders: OwnedFd,
    status: OwnedFd,
    handoff: Option<&OwnedFd>,
) -> ! {
    let mut kept = vec![orders.as_fd(), status.as_fd()];
    kept.extend(handoff.map(AsFd::as_fd));
    let confine = &hello.confine;
    let begun = prepare(hello, stdio, &kept).and_then(|listener| {
        let spawn = listen(orders)?;
        if let (Some(listener), Some(handoff)) = (listener, handoff) {
            hand_out(&listener, handoff, spawn.id)?;
            drop(listener);
            // Neither end is left to the program.
            process::close_all_but(&[status.as_fd()]).step("close descriptors")?;
        }
        Ok((clone::fork_filtered().step("fork")?, spawn))
    });
    match begun {
        Ok((None, spawn)) => {
            let failure = become_program(confine, &spawn);
            fail(&status, failure)
        }
        Ok((Some(program), _)) => watch(program, status),
        Err(failure) => fail(&status, failure),
    }
}

/// Gives away who is to be asked, before there is a program here.
fn hand_out(listener: &OwnedFd, handoff: &OwnedFd, id: u32) -> Result<(), Failure> {
    let descriptors = [listener.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
    let number = id.to_le_bytes();
    rustix::net::sendmsg(
        handoff,
        &[io::IoSlice::new(&number)],
        &mut control,
        rustix::net::SendFlags::NOSIGNAL,
    )
    .step("hand out who decides")?;
    Ok(())
}

fn listen(orders: OwnedFd) -> Result<Spawn, Failure> {
    let mut orders = File::from(orders);
    let mut length = [0; 4];
    let mut hear = || {
        orders.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        orders.read_exact(&mut bytes)?;
        brig_wire::from_bytes(&bytes).map_err(io::Error::other)
    };
    hear().step("hear the order")
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

fn prepare(
    hello: &Hello,
    stdio: &Stdio,
    kept: &[BorrowedFd<'_>],
) -> Result<Option<OwnedFd>, Failure> {
    rustix::stdio::dup2_stdin(&stdio.stdin).step("connect stdin")?;
    rustix::stdio::dup2_stdout(&stdio.stdout).step("connect stdout")?;
    rustix::stdio::dup2_stderr(&stdio.stderr).step("connect stderr")?;
    // It may wait for long, and a file that it held open for writing could not be executed.
    process::close_all_but(kept).step("close descriptors")?;
    match &hello.place {
        Place::Own(setup) => proc::mount(setup)?,
        Place::Container(_) => adopt_orphans()?,
    }
    volunteer_for_oom(&hello.place)?;
    process::reset_signals().step("reset signals")?;
    new_keyring(&hello.place)?;
    if let Place::Own(_) = &hello.place {
        // In a container there are none to drop.
        confine::drop_privileges()?;
    }
    let confine = &hello.confine;
    confine::rlimits(confine)?;
    // The keeper is under the filters too, and one installation serves both.
    let listener = confine::notify(confine)?;
    confine::seccomp(confine)?;
    Ok(listener)
}

/// Where the kernel can't do that, orphans go to the guest, and end with the last execution.
fn adopt_orphans() -> Result<(), Failure> {
    match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).step("adopt orphans"),
    }
}

fn new_keyring(place: &Place) -> Result<(), Failure> {
    let joined = process::new_session_keyring();
    match (place, joined.as_ref().err().and_then(Errno::from_io_error)) {
        // Nobody is given any there, so there is nothing in them.
        (Place::Container(_), Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => Ok(()),
        _ => joined.step("join a new keyring"),
    }
}

/// When memory runs out, the kernel takes a program rather than the guest. The file is ours only
/// while we are dumpable, and nothing untrusted runs here yet.
fn volunteer_for_oom(place: &Place) -> Result<(), Failure> {
    // In a container the guest itself is halfway there.
    let score = match place {
        Place::Own(_) => "500",
        Place::Container(_) => "1000",
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

/// Reaps whatever is left to this process until the program itself has ended.
fn watch(program: u32, status: OwnedFd) -> ! {
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

/// Lets go of the program's streams, so that their ends are seen when the program closes them.
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
