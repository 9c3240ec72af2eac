//! New processes in new namespaces.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_char, c_int, c_long};
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

/// What one execution gets on top: a process tree that the kernel ends as a whole.
pub const EXECUTION_NAMESPACES: u64 = (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;

/// Only a user namespace, to hold a mapping of ids.
pub const USER_NAMESPACE: u64 = libc::CLONE_NEWUSER as u64;

/// As in the kernel's `sched.h`; the constant of `libc` does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A program to start in namespaces of its own. It waits behind a gate until its owner has
/// written its id maps and put it under its limits.
#[derive(Debug)]
pub struct Gated<'a> {
    pub namespaces: u64,
    pub program: BorrowedFd<'a>,
    pub argv: &'a [&'a CStr],
    /// Become descriptors 3, 4, … of the program; it inherits no others but 0, 1 and 2.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// Becomes descriptors 0, 1 and 2.
    pub null: BorrowedFd<'a>,
    /// A version 2 control group to start in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The `tasks` files of version 1 control groups to enter. The process moves itself, which is
    /// the one move that does not wait for every processor of the machine to pause.
    pub tasks: &'a [BorrowedFd<'a>],
}

/// A process that waits to be let go. Dropped, it ends without ever having run its program; so it
/// does when its owner dies.
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    gate: OwnedFd,
}

impl Waiting {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the program run. What it tells of a failure can be read from the returned gate.
    pub fn release(self) -> io::Result<(Child, Gate)> {
        rustix::net::send(&self.gate, &[1], rustix::net::SendFlags::NOSIGNAL)?;
        Ok((self.child, Gate(self.gate)))
    }
}

/// How long a dropped child is waited for. One that is stuck in the kernel is left to its fate.
const PATIENCE: Timespec = Timespec {
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
        // Fails only if it is gone already.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for its end and reaps it. Harmless when that has happened already.
    #[cfg(feature = "async")]
    pub async fn reap(&self) -> io::Result<()> {
        if !self.reaped.load(Ordering::SeqCst) {
            crate::pidfd::reap(self.pidfd.as_fd()).await?;
            self.reaped.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped.load(Ordering::SeqCst) {
            return;
        }
        self.kill();
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        while let Err(Errno::INTR) = rustix::event::poll(&mut ended, Some(&PATIENCE)) {}
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }
}

/// The end of the gate that stays outside.
#[derive(Debug)]
pub struct Gate(OwnedFd);

impl Gate {
    /// Why the program did not start, once it is known to be gone.
    pub fn failure(&self) -> Option<(&'static str, io::Error)> {
        let mut report = [0u8; 5];
        match rustix::io::read(&self.0, &mut report) {
            Ok(5) => {
                let step = STEPS
                    .get(report[0] as usize)
                    .copied()
                    .unwrap_or("unknown step");
                let errno = i32::from_le_bytes([report[1], report[2], report[3], report[4]]);
                Some((step, io::Error::from_raw_os_error(errno)))
            }
            _ => None,
        }
    }
}

const STEPS: [&str; 5] = [
    "raise ambient capabilities",
    "place descriptors",
    "close other descriptors",
    "execute the guest",
    "enter the control group",
];

pub fn spawn_gated(program: &Gated<'_>) -> io::Result<Waiting> {
    let (outside, inside) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let mut argv: Vec<*const c_char> = program.argv.iter().map(|arg| arg.as_ptr()).collect();
    argv.push(std::ptr::null());
    let raw =
        |fds: &[BorrowedFd<'_>]| -> Vec<RawFd> { fds.iter().map(|fd| fd.as_raw_fd()).collect() };
    let mut inside_child = Inside {
        argv: argv.as_ptr(),
        descriptors: raw(program.descriptors),
        tasks: raw(program.tasks),
        kept: Vec::with_capacity(2 + program.tasks.len()),
        executable: program.program.as_raw_fd(),
        null: program.null.as_raw_fd(),
        gate: inside.as_raw_fd(),
    };

    match clone3(program.namespaces, program.cgroup)? {
        Cloned::Parent { pid, pidfd } => Ok(Waiting {
            child: Child {
                pid,
                pidfd,
                reaped: AtomicBool::new(false),
            },
            gate: outside,
        }),
        Cloned::Child => inside_child.run(),
    }
}

/// What the child needs between clone and exec, prepared before, because only calls that are safe
/// in a signal handler may be made there: other threads' locks are frozen in its memory.
struct Inside {
    argv: *const *const c_char,
    descriptors: Vec<RawFd>,
    tasks: Vec<RawFd>,
    /// Room for what is still needed once the descriptors are placed.
    kept: Vec<RawFd>,
    executable: RawFd,
    null: RawFd,
    gate: RawFd,
}

impl Inside {
    fn run(&mut self) -> ! {
        let (step, errno) = self.try_run();
        let mut report = [0u8; 5];
        report[0] = step;
        report[1..].copy_from_slice(&errno.to_le_bytes());
        // SAFETY: writes from a local array, then ends this process without unwinding.
        unsafe {
            libc::write(self.gate, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }

    /// Moves every descriptor out of the way of the numbers to come. Done here and not by the
    /// parent: where threads share a table of descriptors, growing it waits for all processors.
    fn park(&mut self) -> bool {
        // Above every target number, so that placing one never overwrites another.
        let above = 3 + self.descriptors.len() as RawFd;
        let moved = [&mut self.gate, &mut self.executable, &mut self.null]
            .into_iter()
            .chain(&mut self.tasks)
            .chain(&mut self.descriptors);
        for fd in moved {
            // SAFETY: duplicates a descriptor that the parent holds open.
            let parked = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above) };
            if parked < 0 {
                return false;
            }
            *fd = parked;
        }
        // Within what was reserved, so nothing is allocated. In ascending order, as they were made.
        self.kept.push(self.gate);
        self.kept.push(self.executable);
        self.kept.extend_from_slice(&self.tasks);
        true
    }

    fn try_run(&mut self) -> (u8, i32) {
        let mut go = 0u8;
        if !self.park() {
            return (1, errno());
        }
        // SAFETY: only system calls on plain descriptors and memory owned by this frame or by the
        // parent's frame, which this process has a copy of.
        unsafe {
            for target in 0..3 {
                if libc::dup2(self.null, target) < 0 {
                    return (1, errno());
                }
            }
            for (index, fd) in self.descriptors.iter().enumerate() {
                if libc::dup2(*fd, 3 + index as c_int) < 0 {
                    return (1, errno());
                }
            }
            // Before the wait: the owner's end of this gate, or of that of a process which waits
            // beside us, would keep both from noticing the owner's death.
            let mut from = 3 + self.descriptors.len() as c_int;
            for fd in self.kept.iter().copied().chain([c_int::MAX]) {
                if from < fd && libc::close_range(from as u32, fd as u32 - 1, 0) < 0 {
                    return (2, errno());
                }
                from = fd.saturating_add(1);
            }
            loop {
                match libc::read(self.gate, (&raw mut go).cast(), 1) {
                    1 => break,
                    -1 if errno() == libc::EINTR => {}
                    _ => libc::_exit(0),
                }
            }
            for tasks in &self.tasks {
                if libc::write(*tasks, c"0".as_ptr().cast(), 1) != 1 {
                    return (4, errno());
                }
            }
            if raise_ambient() < 0 {
                return (0, errno());
            }
            let none: *const c_char = std::ptr::null();
            libc::syscall(
                libc::SYS_execveat,
                self.executable,
                c"".as_ptr(),
                self.argv,
                &raw const none,
                libc::AT_EMPTY_PATH,
            );
            (3, errno())
        }
    }
}

fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// Keeps the capabilities over the new user namespace across exec, since the program is not
/// user 0 there.
///
/// # Safety
/// Changes the credentials of the calling thread: only for a child before exec.
unsafe fn raise_ambient() -> c_long {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: both structures are as large as version 3 of the call expects.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) < 0 {
            return -1;
        }
        for word in &mut data {
            word.inheritable = word.permitted;
        }
        if libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) < 0 {
            return -1;
        }
        for capability in 0..64u64 {
            if data[(capability / 32) as usize].permitted >> (capability % 32) & 1 == 1 {
                let raised = libc::prctl(
                    libc::PR_CAP_AMBIENT,
                    libc::PR_CAP_AMBIENT_RAISE,
                    capability,
                    0,
                    0,
                );
                if raised < 0 {
                    return -1;
                }
            }
        }
    }
    0
}

/// Which of the two processes this is after a [`fork`].
#[derive(Debug)]
pub enum Fork {
    Parent { pid: u32, pidfd: OwnedFd },
    Child,
}

/// Forks into new namespaces. Refuses in a process with more than one thread, where a child could
/// meet locks that nobody will ever release.
pub fn fork(namespaces: u64) -> io::Result<Fork> {
    require_one_thread()?;
    Ok(match clone3(namespaces, None)? {
        Cloned::Parent { pid, pidfd } => Fork::Parent { pid, pidfd },
        Cloned::Child => Fork::Child,
    })
}

/// Forks by the old call, whose flags a filter can see: for a process that is under one. `None` in
/// the child. Not checked for other threads: only for the child of a [`fork`], which has none.
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

enum Cloned {
    Parent { pid: u32, pidfd: OwnedFd },
    Child,
}

fn clone3(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
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
