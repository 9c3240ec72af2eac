//! Seccomp user notifications: system calls that wait until another process answers them.
//!
//! `libseccomp` would bring a C library and a filter compiler of its own; `rustix` has none of these
//! calls.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::seccomp::{self, Action, Arch, Rule, Test};

/// The call that sets up thread-local storage, in a C library and in the runtime of Go. A program
/// makes it once, after `execve` and before any code of its own.
#[cfg(target_arch = "x86_64")]
const STARTED: (libc::c_long, &[Test]) = (
    libc::SYS_arch_prctl,
    &[Test {
        argument: 0,
        mask: WORD,
        value: 0x1002, // ARCH_SET_FS
    }],
);
#[cfg(not(target_arch = "x86_64"))]
const STARTED: (libc::c_long, &[Test]) = (libc::SYS_set_tid_address, &[]);

/// The kernel takes these arguments as an `int` and ignores the other half.
const WORD: u64 = 0xffff_ffff;

/// A filter that notifies about every start of a program, before and after it, and forbids what
/// would hide one: a second filter of the program's could answer in place of this one.
///
/// With `lists` it also notifies about the first call of the C library's loader, which comes before
/// the loader reads its arguments. `also` are rules for other calls, see [`crate::mediate`].
pub fn exec_filter(lists: bool, also: &[Rule]) -> Vec<u64> {
    let arch = Arch::from_name(std::env::consts::ARCH);
    arch.map_or_else(Vec::new, |arch| {
        let mut rules = exec_rules(lists);
        rules.extend_from_slice(also);
        seccomp::compile(arch, &rules, Action::Allow)
    })
}

fn exec_rules(lists: bool) -> Vec<Rule> {
    let rule = |call: libc::c_long, tests: &[Test], action| Rule {
        call: call as u32,
        tests: tests.to_vec(),
        action,
    };
    let is = |argument, mask, value| Test {
        argument,
        mask,
        value,
    };
    let mut rules = vec![
        rule(libc::SYS_execve, &[], Action::Notify),
        rule(libc::SYS_execveat, &[], Action::Notify),
        rule(STARTED.0, STARTED.1, Action::Notify),
    ];
    if lists {
        let query = is(0, u64::MAX, 0);
        rules.push(rule(libc::SYS_brk, &[query], Action::Notify));
    }
    // The answer of a kernel without seccomp, so that programs do without filters.
    let absent = Action::Errno(libc::EINVAL as u16);
    for query in [
        libc::SECCOMP_GET_ACTION_AVAIL,
        libc::SECCOMP_GET_NOTIF_SIZES,
    ] {
        let query = is(0, WORD, query.into());
        rules.push(rule(libc::SYS_seccomp, &[query], Action::Allow));
    }
    rules.push(rule(libc::SYS_seccomp, &[], absent));
    let set = |option: libc::c_int| is(0, WORD, option as u64);
    rules.push(rule(libc::SYS_prctl, &[set(libc::PR_SET_SECCOMP)], absent));
    // With these a program could look like another one in /proc.
    let denied = Action::Errno(libc::EPERM as u16);
    rules.push(rule(libc::SYS_prctl, &[set(libc::PR_SET_MM)], denied));
    let (ask, fixed) = (is(0, WORD, WORD), libc::ADDR_NO_RANDOMIZE as u64);
    rules.push(rule(libc::SYS_personality, &[ask], Action::Allow));
    let fixed = is(0, fixed, fixed);
    rules.push(rule(libc::SYS_personality, &[fixed], denied));
    rules
}

/// The end that answers. Once all copies are closed, the calls fail with ENOSYS.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// The thread that made the call, by its id in the namespace of this process.
    pub thread: u32,
    pub call: Call,
    pub number: i32,
    pub args: [u64; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `execve` or `execveat`. Pointers are into the memory of the caller.
    Exec {
        /// The descriptor that the path is relative to, if not the working directory.
        directory: Option<i32>,
        path: u64,
        arguments: u64,
        /// `AT_EMPTY_PATH`: with an empty path, `directory` is the program itself.
        empty_path: bool,
    },
    /// A program has been started, and has not run any code of its own. A program that runs already
    /// may make such a call again.
    Started,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel makes the call. Memory that it points to may have changed since it was read.
    Continue,
    /// The call is not made, and fails.
    Errno(i32),
    /// The call is not made, and returns this.
    Value(i64),
}

impl Listener {
    /// Asks the kernel to wake the caller on the processor that answers, instead of looking for an
    /// idle one first. Not supported before Linux 6.6.
    pub fn set_sync_wake_up(&self) {
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: takes a number, and fails on kernels that don't know the call.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
    }

    /// Receives a call. `None` if its caller is gone. Blocks while there is none.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        // SAFETY: all-zero is a valid structure, as the call demands; it is filled by the kernel.
        let (result, received) = unsafe {
            let mut received: libc::seccomp_notif = std::mem::zeroed();
            let result = libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut received,
            );
            (result, received)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        Ok(Some(Notification {
            id: received.id,
            thread: received.pid,
            call: call(&received.data),
            number: received.data.nr,
            args: received.data.args,
        }))
    }

    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<()> {
        let (val, error, flags) = match answer {
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Errno(errno) => (0, -errno, 0),
            Answer::Value(value) => (value, 0, 0),
        };
        let mut answer = libc::seccomp_notif_resp {
            id,
            val,
            error,
            flags,
        };
        // SAFETY: the structure is a local that outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw mut answer,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Answers the call with a new descriptor of the caller. Not supported before Linux 5.14.
    pub fn add_fd(&self, id: u64, descriptor: impl AsFd, close_on_exec: bool) -> io::Result<()> {
        let close = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let mut added = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: descriptor.as_fd().as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: close as u32,
        };
        // SAFETY: the structure is a local that outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ADDFD,
                &raw mut added,
            )
        };
        match result {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the call still waits. If so, everything read from the thread since the call was
    /// received is from this thread, and not from a later one with the same id.
    pub fn is_pending(&self, id: u64) -> bool {
        // SAFETY: reads a number that outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const id,
            )
        };
        result == 0
    }
}

fn call(data: &libc::seccomp_data) -> Call {
    let args = &data.args;
    match libc::c_long::from(data.nr) {
        libc::SYS_execve => Call::Exec {
            directory: None,
            path: args[0],
            arguments: args[1],
            empty_path: false,
        },
        libc::SYS_execveat => {
            let directory = args[0] as i32;
            Call::Exec {
                directory: (directory != libc::AT_FDCWD).then_some(directory),
                path: args[1],
                arguments: args[2],
                empty_path: args[4] as i32 & libc::AT_EMPTY_PATH != 0,
            }
        }
        libc::SYS_brk => Call::Started,
        number if number == STARTED.0 => Call::Started,
        _ => Call::Other,
    }
}

/// Whether this is the number of `execve` or `execveat`.
pub fn is_exec(number: i64) -> bool {
    [libc::SYS_execve, libc::SYS_execveat].contains(&(number as libc::c_long))
}

/// Reads memory of another process, up to the length of the buffer.
pub fn read_memory(thread: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: the kernel writes only into the buffer, and checks the other side's address.
    let count = unsafe {
        libc::process_vm_readv(
            thread as libc::pid_t,
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    let failed = match usize::try_from(count) {
        Ok(count) => return Ok(count),
        Err(_) => io::Error::last_os_error(),
    };
    match failed.raw_os_error() {
        // Container engines may forbid the call by seccomp. The file requires the same permissions.
        Some(libc::EPERM | libc::ENOSYS) => {
            let memory = std::fs::File::open(format!("/proc/{thread}/mem"))?;
            std::os::unix::fs::FileExt::read_at(&memory, buffer, address)
        }
        _ => Err(failed),
    }
}
