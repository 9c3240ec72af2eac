//! New processes in new namespaces.
//!
//! `nix` and `rustix` have no `clone3` with `CLONE_INTO_CGROUP`, and `std` can't make namespaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};

/// Every namespace a sandbox gets.
pub const ALL_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// What one execution gets in addition: a process tree that the kernel ends as a whole.
pub const EXECUTION_NAMESPACES: u64 = (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;

/// As in the kernel's `sched.h`. The constant of `libc` overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// How long a dropped child is waited for. The kernel may take longer to remove its namespaces: then a thread
/// waits for it.
const DROP_TIMEOUT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A child of this process. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    pidfd: OwnedFd,
    reaped: AtomicBool,
}

impl Child {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn kill(&self) {
        // Fails only if the process is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for its end and reaps it. Does nothing if that has happened already.
    #[cfg(feature = "async")]
    pub async fn reap(&self) -> io::Result<()> {
        if !self.reaped.load(Ordering::SeqCst) {
            crate::pidfd::reap(self.pidfd.as_fd()).await?;
            self.reaped.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Child {
    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Self {
        Self {
            pid,
            pidfd,
            reaped: AtomicBool::new(false),
        }
    }

    /// Kills and reaps it, unless that has happened already. Returns whether it is gone.
    pub(crate) fn finish(&self) -> bool {
        if self.reaped.load(Ordering::SeqCst) {
            return true;
        }
        self.kill();
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        while let Err(Errno::INTR) = rustix::event::poll(&mut ended, Some(&DROP_TIMEOUT)) {}
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let waited = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        let gone = matches!(waited, Ok(Some(_)) | Err(Errno::CHILD));
        self.reaped.store(gone, Ordering::SeqCst);
        gone
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.finish() {
            reap_later(self.pidfd.as_fd());
        }
    }
}

/// Otherwise it would be a zombie for as long as this process lives.
fn reap_later(pidfd: BorrowedFd<'_>) {
    let Ok(pidfd) = pidfd.try_clone_to_owned() else {
        return;
    };
    let wait = move || {
        let wait = || rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        while let Err(Errno::INTR) = wait() {}
    };
    // Without a thread there is nobody to wait: it stays until this process ends.
    let _ = std::thread::Builder::new().name("reap".into()).spawn(wait);
}

/// Which of the two processes this is after a [`fork`].
#[derive(Debug)]
pub enum Fork {
    Parent { pid: u32, pidfd: OwnedFd },
    Child,
}

/// Forks into new namespaces. Fails in a process with more than one thread, because the child's copy
/// of the memory could contain locks that nobody will ever release.
pub fn fork(namespaces: u64) -> io::Result<Fork> {
    require_one_thread()?;
    Ok(match clone3(namespaces, None)? {
        Cloned::Parent { pid, pidfd } => Fork::Parent { pid, pidfd },
        Cloned::Child => Fork::Child,
    })
}

/// Forks with `clone`, whose flags a seccomp filter can inspect, unlike those of `clone3`. `None` in
/// the child. Only for the child of a [`fork`]: that has one thread, so it is not checked here.
pub fn fork_filtered() -> io::Result<Option<u32>> {
    // SAFETY: as in `clone3`: no CLONE_VM, so the child has a copy of everything.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

fn require_one_thread() -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let threads = std::fs::metadata("/proc/self/task")?
        .nlink()
        .saturating_sub(2);
    if threads > 1 {
        return Err(io::Error::other(
            "fork in a process with more than one thread",
        ));
    }
    Ok(())
}

pub(crate) enum Cloned {
    Parent { pid: u32, pidfd: OwnedFd },
    Child,
}

pub(crate) fn clone3(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: c_int = -1;
    // SAFETY: all-zero is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child has its own copy of all memory and continues on the same
    // stack, as after fork; the arguments live on this frame.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut args,
            std::mem::size_of::<libc::clone_args>(),
        )
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent {
            pid: pid as u32,
            // SAFETY: the kernel has just put a new descriptor there, which nobody else owns.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// A zombie has an entry in `/proc`, and only who waits for it removes that.
    #[test]
    fn a_child_that_takes_long_to_end_is_reaped_when_it_has() {
        let started = std::process::Command::new("sleep").arg("60").spawn();
        let pid = started.expect("a child").id();
        let entry = format!("/proc/{pid}");
        let known = Pid::from_raw(pid.cast_signed()).expect("a number");
        let child = Child::new(
            pid,
            pidfd_open(known, PidfdFlags::empty()).expect("a descriptor"),
        );
        reap_later(child.pidfd.as_fd());
        assert!(Path::new(&entry).exists(), "the control: it runs");
        child.kill();
        // What is dropped would reap it too.
        std::mem::forget(child);
        let begun = Instant::now();
        while Path::new(&entry).exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
