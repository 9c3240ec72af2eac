//! System calls that wait for an answer from outside: who made them, what they say, and the answer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::seccomp::{self, Action, Arch, Rule};

/// A filter that asks outside about every start of a program, and, with `started`, about the call
/// that every program of a C library makes before any code of its own.
pub fn exec_filter(started: bool) -> Vec<u64> {
    let Some(arch) = Arch::from_name(std::env::consts::ARCH) else {
        return Vec::new();
    };
    let mut calls = vec![libc::SYS_execve, libc::SYS_execveat];
    if started {
        calls.push(libc::SYS_set_tid_address);
    }
    let rules: Vec<Rule> = calls
        .into_iter()
        .map(|call| Rule {
            call: call as u32,
            tests: Vec::new(),
            action: Action::Notify,
        })
        .collect();
    seccomp::compile(arch, &rules, Action::Allow)
}

/// The end that decides. Once it is closed, the calls fail with ENOSYS.
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

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub id: u64,
    /// The thread that made it, as this process sees it.
    pub thread: u32,
    pub call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A program is to be started. Addresses are those of the caller.
    Exec {
        /// What the path is relative to, if not the current folder.
        folder: Option<i32>,
        path: u64,
        arguments: u64,
        /// An empty path stands for the folder's own descriptor.
        empty_path: bool,
    },
    /// A program has been started, and has not run any code of its own.
    Started,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is made. What it says may have changed since it was read.
    Continue,
    /// The call fails.
    Errno(i32),
}

impl Listener {
    /// Asks the kernel to go on with the caller where the answer was given, and not to look for a
    /// free processor first. Kernels before 6.6 can't.
    pub fn wake_in_place(&self) {
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: takes a number, and fails where it is not known.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
    }

    /// Takes a call. Nothing if whoever made it is gone. Blocks while there is none.
    pub fn receive(&self) -> io::Result<Option<Waiting>> {
        // SAFETY: all-zero is a valid structure, as the call demands; it is filled by the kernel.
        let (result, heard) = unsafe {
            let mut heard: libc::seccomp_notif = std::mem::zeroed();
            let result = libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut heard,
            );
            (result, heard)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        Ok(Some(Waiting {
            id: heard.id,
            thread: heard.pid,
            call: call(&heard.data),
        }))
    }

    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<()> {
        let (error, flags) = match answer {
            Answer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Errno(errno) => (-errno, 0),
        };
        let mut answer = libc::seccomp_notif_resp {
            id,
            val: 0,
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

    /// Whether the call still waits. If so, what was read of the thread since it was taken was
    /// this thread's, and not that of another with the same number.
    pub fn waits(&self, id: u64) -> bool {
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
            folder: None,
            path: args[0],
            arguments: args[1],
            empty_path: false,
        },
        libc::SYS_execveat => {
            let folder = args[0] as i32;
            Call::Exec {
                folder: (folder != libc::AT_FDCWD).then_some(folder),
                path: args[1],
                arguments: args[2],
                empty_path: args[4] as i32 & libc::AT_EMPTY_PATH != 0,
            }
        }
        libc::SYS_set_tid_address => Call::Started,
        _ => Call::Other,
    }
}

/// Reads memory of another process, as much as there is up to the length of the buffer.
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
        // A filter may forbid the call to all of a container; the file asks for the same rights.
        Some(libc::EPERM | libc::ENOSYS) => {
            let memory = std::fs::File::open(format!("/proc/{thread}/mem"))?;
            std::os::unix::fs::FileExt::read_at(&memory, buffer, address)
        }
        _ => Err(failed),
    }
}
