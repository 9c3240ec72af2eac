//! User namespaces without programs, which only define how ids are mapped.

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::clone::Child;

/// More than a process needs that makes three system calls.
const STACK: usize = 16 * 1024;

/// A process in a new user namespace that only waits. It shares the memory of this process, because a copy would
/// be the most expensive part. When this is dropped, it is killed and reaped. It also ends with its owner.
#[derive(Debug)]
pub struct NamespaceProcess {
    child: Child,
    gate: Option<OwnedFd>,
    /// In use until the process is gone.
    stack: ManuallyDrop<Box<[u128]>>,
}

impl NamespaceProcess {
    pub fn start() -> io::Result<Self> {
        let (outside, inside) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let mut stack =
            ManuallyDrop::new(vec![0_u128; STACK / size_of::<u128>()].into_boxed_slice());
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut pidfd: c_int = -1;
        // SAFETY: the stack outlives the process (see `Drop`) and its end is aligned to 16 bytes. The
        // process shares this thread's local storage, so it must touch none: `wait` makes only calls
        // that can't fail, and with all signals blocked no handler runs in it.
        let (pid, error) = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let gate = inside.as_raw_fd() as usize as *mut c_void;
            let pid = libc::clone(wait, top.cast(), flags, gate, &raw mut pidfd);
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            (pid, error)
        };
        let Ok(pid) = u32::try_from(pid) else {
            ManuallyDrop::into_inner(stack);
            return Err(error);
        };
        // SAFETY: the kernel has just put a new descriptor there, which nobody else owns.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Self {
            child: Child::new(pid, pidfd),
            gate: Some(outside),
            stack,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it exit. It is reaped when this is dropped.
    pub fn end(&mut self) {
        self.gate = None;
    }
}

impl Drop for NamespaceProcess {
    fn drop(&mut self) {
        self.end();
        if self.child.finish() {
            // SAFETY: nobody uses it any more, and it is dropped once. Otherwise it is left alone.
            unsafe { ManuallyDrop::drop(&mut self.stack) };
        }
    }
}

/// All that the process does: closes everything but its gate, and waits until that is closed.
extern "C" fn wait(gate: *mut c_void) -> c_int {
    let gate = gate as usize as u32;
    let mut byte = 0_u8;
    // SAFETY: plain system calls on descriptors of this process's own table, and on its own stack.
    // Not through functions of the C library that keep notes about their thread.
    unsafe {
        if let Some(last) = gate.checked_sub(1) {
            libc::syscall(libc::SYS_close_range, 0, last, 0);
        }
        libc::syscall(libc::SYS_close_range, gate + 1, u32::MAX, 0);
        libc::syscall(libc::SYS_read, gate, &raw mut byte, 1_usize);
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}

#[cfg(test)]
mod tests {
    use crate::process_stat::ProcessStat;

    use super::*;

    fn namespace(of: &str) -> Option<std::path::PathBuf> {
        std::fs::read_link(format!("/proc/{of}/ns/user")).ok()
    }

    #[test]
    fn it_has_a_namespace_of_its_own_and_nothing_else() {
        let Ok(process) = NamespaceProcess::start() else {
            // Not allowed to everybody.
            assert!(!rustix::process::geteuid().is_root());
            return;
        };
        let pid = process.pid().to_string();
        assert_ne!(namespace(&pid), namespace("self"));
        let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while descriptors().is_ok_and(|count| count != 1) {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
        drop(process);
        assert_eq!(namespace(&pid), None);
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        for _ in 0..100 {
            let Ok(mut process) = NamespaceProcess::start() else {
                return;
            };
            process.end();
            let ended = || ProcessStat::of(process.pid()).is_ok_and(|stat| stat.has_ended());
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !ended() {
                assert!(std::time::Instant::now() < until);
                std::thread::yield_now();
            }
        }
    }
}
