//! A command that ends with everything it has started.
//!
//! A process group is not enough: a program can leave it. So a process of ours is between the owner and the
//! command. It adopts every orphan below it (`PR_SET_CHILD_SUBREAPER`), and when the command has ended, or the
//! owner is gone, it kills its children until there are none.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use crate::clone::fork_filtered;
use crate::process::{close_range, exit_now};

/// How often children are killed at the end. One that nobody may kill is given up after this many rounds.
const ROUNDS: u32 = 2000;
/// Between two rounds in which nothing has ended.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

/// Keeps a supervised command alive. When it is dropped, or its process ends in any way, the command and
/// everything it has started is killed.
#[derive(Debug)]
pub struct Supervision {
    _open: OwnedFd,
}

/// Puts the command under supervision. The process that the caller then starts is the supervisor; it ends
/// with the exit code of the command, or 128 and the number of the signal that ended it, once nothing is left.
/// The command has a session of its own. For one start.
pub fn supervise(command: &mut Command) -> io::Result<Supervision> {
    let (owner, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: what runs in the new process makes system calls only: it allocates nothing and takes no locks.
    unsafe {
        command.pre_exec(move || supervise_next(owner.as_fd()));
    }
    Ok(Supervision { _open: open })
}

/// Returns in a new child, which becomes the command. This process supervises it.
fn supervise_next(owner: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let child = fork_filtered()?;
    rustix::process::setsid()?;
    let Some(child) = child else {
        return Ok(());
    };
    let child = i32::try_from(child).ok().and_then(Pid::from_raw);
    let code = match (child, detach(owner)) {
        (Some(child), Ok(())) => wait(child, owner),
        _ => FAILED,
    };
    end_children();
    exit_now(code)
}

/// The exit code if the supervisor itself fails.
const FAILED: i32 = 125;

/// Makes the supervisor independent of signals, and closes all descriptors but one: the other side would wait
/// for streams that it holds.
fn detach(owner: BorrowedFd<'_>) -> io::Result<()> {
    let kept = owner.as_raw_fd().cast_unsigned();
    let last = i32::MAX.cast_unsigned();
    // SAFETY: the name is null-terminated, the set is initialised by `sigfillset`, and nothing in this process
    // uses the closed descriptors again.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"brig-tool".as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        let below = kept == 0 || close_range(0, kept - 1) == 0;
        if !below || close_range(kept + 1, last) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits until the command has ended or its owner is gone.
fn wait(child: Pid, owner: BorrowedFd<'_>) -> i32 {
    let Ok(ended) = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()) else {
        return FAILED;
    };
    let mut events = [
        PollFd::new(&ended, PollFlags::IN),
        PollFd::from_borrowed_fd(owner, PollFlags::empty()),
    ];
    while let Err(Errno::INTR) = rustix::event::poll(&mut events, None) {}
    if events[0].revents().is_empty() {
        // Not yet reaped, so the number is still its own.
        let _ = rustix::process::kill_process_group(child, Signal::KILL);
        return 128 + Signal::KILL.as_raw();
    }
    let status = rustix::process::waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
    status.ok().flatten().map_or(FAILED, |status| code(&status))
}

fn code(status: &WaitIdStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(FAILED)
}

/// Kills all children until there are none. Children of a killed one become ours.
fn end_children() {
    for _ in 0..ROUNDS {
        kill_children();
        let mut reaped = false;
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match rustix::process::waitid(WaitId::All, options) {
                Ok(Some(_)) => reaped = true,
                Ok(None) | Err(Errno::INTR) => break,
                Err(_) => return,
            }
        }
        if !reaped {
            let _ = rustix::event::poll(&mut [], Some(&PAUSE));
        }
    }
}

fn kill_children() {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/thread-self/children", flags, Mode::empty());
    let Ok(list) = list else { return };
    let mut buffer = [0_u8; 4096];
    let Ok(length) = rustix::io::read(&list, &mut buffer) else {
        return;
    };
    let mut pid = 0_i32;
    // An id is followed by a space. One that is cut off has its turn in the next round.
    for byte in &buffer[..length] {
        if byte.is_ascii_digit() {
            pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
            continue;
        }
        if let Some(child) = Pid::from_raw(std::mem::take(&mut pid)) {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Stdio};

    use super::*;
    use crate::process_stat::ProcessStat;

    /// A shell that leaves a process in another session, and prints its id. It goes on when its stdin is closed.
    fn start(then: &str) -> (Child, Supervision, u32) {
        let mut command = Command::new("sh");
        let left = "setsid sh -c 'trap : TERM INT HUP; sleep 600 & echo $!; wait' & read line; ";
        command.args(["-c", &format!("{left}{then}")]);
        command.stdout(Stdio::piped()).stdin(Stdio::piped());
        let supervision = supervise(&mut command).expect("supervised");
        let mut child = command.spawn().expect("sh");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("an id");
        let left = line.trim().parse().expect("a number");
        assert!(runs(left), "control");
        (child, supervision, left)
    }

    fn runs(pid: u32) -> bool {
        ProcessStat::of(pid).is_ok_and(|stat| !stat.has_ended())
    }

    /// At once: the supervisor has waited for it.
    #[test]
    fn nothing_is_left_when_the_command_ends() {
        for (then, code) in [("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
            let (mut child, _supervision, left) = start(then);
            drop(child.stdin.take());
            assert_eq!(child.wait().expect("ended").code(), Some(code));
            assert!(!runs(left));
        }
    }

    #[test]
    fn nothing_is_left_when_the_owner_is_gone() {
        let (mut child, supervision, left) = start("");
        // `wait` would close its stdin, and end it.
        let _stdin = child.stdin.take();
        let (_other, _supervision, other) = start("");
        drop(supervision);
        assert_eq!(child.wait().expect("ended").code(), Some(128 + 9));
        assert!(!runs(left));
        assert!(runs(other), "control");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let mut command = Command::new("/nonexistent/program");
        let _supervision = supervise(&mut command).expect("supervised");
        let error = command.spawn().expect_err("missing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
