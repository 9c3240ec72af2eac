//! A process in new namespaces that waits until its owner lets it run: id maps, processors and
//! control groups have to be set from outside, before the program starts.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{c_char, c_int, c_long};

use crate::clone::{Child, Cloned, clone3};
use crate::process::close_range;

/// A program to start in namespaces of its own. It waits at a gate until its owner has written
/// its id maps and applied its limits.
#[derive(Debug)]
pub struct GatedProgram<'a> {
    pub namespaces: u64,
    pub program: BorrowedFd<'a>,
    pub argv: &'a [&'a CStr],
    /// Become descriptors 3, 4, … of the program. It inherits no others but 0, 1 and 2.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// Becomes descriptors 0, 1 and 2.
    pub null: BorrowedFd<'a>,
    /// A version 2 control group to start in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The `tasks` files of version 1 control groups to enter. The process moves itself, because
    /// moving another process takes a lock that waits for an RCU grace period.
    pub tasks: &'a [BorrowedFd<'a>],
}

/// A process that waits at its gate. When this is dropped, or the owner dies, it ends without
/// having run its program.
#[derive(Debug)]
pub struct GatedChild {
    child: Child,
    gate: OwnedFd,
}

impl GatedChild {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the program run. If it can't be started, the returned gate has the reason.
    pub fn release(self) -> io::Result<(Child, Gate)> {
        rustix::net::send(&self.gate, &[1], rustix::net::SendFlags::NOSIGNAL)?;
        Ok((self.child, Gate(self.gate)))
    }
}

/// The owner's end of the gate.
#[derive(Debug)]
pub struct Gate(OwnedFd);

impl Gate {
    /// Why the program did not start. To be called once the process is known to be gone.
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

pub fn spawn_gated(program: &GatedProgram<'_>) -> io::Result<GatedChild> {
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
    let mut child_setup = ChildSetup {
        argv: argv.as_ptr(),
        descriptors: raw(program.descriptors),
        tasks: raw(program.tasks),
        kept: Vec::with_capacity(2 + program.tasks.len()),
        executable: program.program.as_raw_fd(),
        null: program.null.as_raw_fd(),
        gate: inside.as_raw_fd(),
    };

    match clone3(program.namespaces, program.cgroup)? {
        Cloned::Parent { pid, pidfd } => Ok(GatedChild {
            child: Child::new(pid, pidfd),
            gate: outside,
        }),
        Cloned::Child => child_setup.run(),
    }
}

/// What the child needs between clone and exec. Prepared before, because the child may only make
/// async-signal-safe calls: its copy of the memory may contain locks of other threads, which nobody
/// will ever release.
struct ChildSetup {
    argv: *const *const c_char,
    descriptors: Vec<RawFd>,
    tasks: Vec<RawFd>,
    /// Capacity for the descriptors that are still needed once the others are placed.
    kept: Vec<RawFd>,
    executable: RawFd,
    null: RawFd,
    gate: RawFd,
}

impl ChildSetup {
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

    /// Moves every descriptor above the target numbers. Done here and not by the parent: in a process
    /// with threads, growing the descriptor table waits for an RCU grace period.
    fn move_descriptors_up(&mut self) -> bool {
        // Above every target number, so that placing one never overwrites another.
        let above = 3 + self.descriptors.len() as RawFd;
        let all = [&mut self.gate, &mut self.executable, &mut self.null]
            .into_iter()
            .chain(&mut self.tasks)
            .chain(&mut self.descriptors);
        for fd in all {
            // SAFETY: duplicates a descriptor that the parent holds open.
            let moved = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above) };
            if moved < 0 {
                return false;
            }
            *fd = moved;
        }
        // Within the reserved capacity, so nothing is allocated. In ascending order, as duplicated.
        self.kept.push(self.gate);
        self.kept.push(self.executable);
        self.kept.extend_from_slice(&self.tasks);
        true
    }

    fn try_run(&mut self) -> (u8, i32) {
        let mut go = 0u8;
        if !self.move_descriptors_up() {
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
            // Before the wait: with a copy of the owner's end of this gate, or of the gate of another
            // waiting process, neither would notice the owner's death.
            let mut from = 3 + self.descriptors.len() as c_int;
            for fd in self.kept.iter().copied().chain([c_int::MAX]) {
                if from < fd && close_range(from as u32, fd as u32 - 1) < 0 {
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
            // A caller without ASLR, for example in a debugger, would have all programs run without.
            libc::personality(0);
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

/// Keeps the capabilities over the new user namespace across exec: the program is not user 0
/// there, so the kernel would drop them.
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
