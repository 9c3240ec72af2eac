//! What a process does to itself.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_char;

/// Gives every signal its default meaning and unblocks them all, as a fresh program expects.
pub fn reset_signals() -> io::Result<()> {
    // SAFETY: sets dispositions to SIG_DFL and the mask to empty; no handler of ours runs.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            // Fails for SIGKILL, SIGSTOP and the two that libc keeps to itself; they are default.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Replaces this process; returns only on failure.
pub fn exec(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end with a null pointer and outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process at once: no destructors, no exit handlers, no flushing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Ends every other process of the namespace whose process 1 this is, in one step that no fork can
/// outrun.
pub fn kill_all_others() -> io::Result<()> {
    // SAFETY: both calls only take numbers.
    let result = unsafe {
        if libc::getpid() != 1 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        libc::kill(-1, libc::SIGKILL)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A session keyring of its own, so that none of the caller's keys are in reach.
pub fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let result = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            std::ptr::null::<c_char>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Takes ownership of the `count` descriptors from 3 on that this program was started with.
/// Answers once; after that they have their owners.
pub fn take_inherited(count: usize) -> Option<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    (3..3 + count as RawFd)
        .map(|fd| {
            // SAFETY: a query on a number; it fails if the number is not open.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                return None;
            }
            // SAFETY: the descriptor is open, came with the program, and is handed out only here.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .collect()
}

/// Closes every descriptor but 0, 1, 2 and `kept`. For a process that was forked to become
/// something else: whatever held the others must not be used.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut from = 3;
    // Descriptors are never negative, and not every kernel takes them for unsigned.
    for fd in kept.into_iter().chain([1 << 31]) {
        // SAFETY: callers own nothing else that they will use again, as documented.
        if from < fd && unsafe { libc::close_range(from, fd - 1, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        from = fd.saturating_add(1);
    }
    Ok(())
}

/// Makes a terminal the controlling one of this session.
pub fn set_controlling_terminal(terminal: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// What a child and everything it waited for used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildUsage {
    pub status: i32,
    pub cpu_microseconds: u64,
    pub peak_memory_bytes: u64,
}

/// What this process's children, and theirs, have used so far.
pub fn children_usage() -> ChildUsage {
    // SAFETY: all-zero is a valid `rusage`, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    ChildUsage::from_raw(0, &usage)
}

impl ChildUsage {
    fn from_raw(status: i32, usage: &libc::rusage) -> Self {
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        Self {
            status,
            cpu_microseconds: micros(usage.ru_utime) + micros(usage.ru_stime),
            peak_memory_bytes: usage.ru_maxrss as u64 * 1024,
        }
    }
}

/// Waits for one child, or for any with `None`. `Ok(None)` with `block` off: nothing has ended.
pub fn wait(pid: Option<u32>, block: bool) -> io::Result<Option<(u32, ChildUsage)>> {
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`; both out-pointers are to locals.
    let (ended, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let target = pid.map_or(-1, |pid| pid as libc::pid_t);
        let flags = if block { 0 } else { libc::WNOHANG };
        (
            libc::wait4(
                target,
                &raw mut status,
                flags | libc::__WALL,
                &raw mut usage,
            ),
            usage,
        )
    };
    match ended {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        ended => Ok(Some((ended as u32, ChildUsage::from_raw(status, &usage)))),
    }
}

/// Sets a resource limit, soft and hard, by its number.
pub fn set_rlimit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the kernel checks the number; the structure is a local.
    let result = unsafe { libc::setrlimit(resource, &raw const limit) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes all addresses that share their first `bits` with `first` lead to this network namespace
/// itself: an address of the loopback interface stands for its whole network.
pub fn add_loopback_range(first: [u8; 4], bits: u8) -> io::Result<()> {
    let bits = u32::from(bits.min(32));
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0).to_be_bytes();
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    for (call, bytes) in [(libc::SIOCSIFADDR, first), (libc::SIOCSIFNETMASK, mask)] {
        // SAFETY: all-zero is a valid `ifreq` and `sockaddr_in`; the name stays null-terminated; a
        // `sockaddr_in` is as large as the `sockaddr` whose place it takes.
        let result = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(b"lo:1") {
                *to = *from as c_char;
            }
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_addr.s_addr = u32::from_ne_bytes(bytes);
            request.ifr_ifru.ifru_addr =
                std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address);
            libc::ioctl(socket.as_raw_fd(), call, &raw const request)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Brings up the loopback interface of this network namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero is a valid `ifreq`; the name stays null-terminated; the flags member of
    // the union is the one that this call reads.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as c_char;
        request.ifr_name[1] = b'o' as c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
