//! Calls that change the calling process.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_char;

/// Resets all signals to their defaults and unblocks them, as a new program expects.
pub fn reset_signals() -> io::Result<()> {
    // All zero: SIG_DFL, no flags, an empty mask.
    let default = [0_u64; 4];
    // SAFETY: sets dispositions to SIG_DFL and the mask to empty; no handler of ours runs. The array
    // is as long as the kernel's structure, whose mask has 8 bytes.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            // Fails for SIGKILL, SIGSTOP and the two that libc reserves.
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in [32, 33] {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                none,
                8_usize,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes the process independent of the caller's signal settings: a write beyond RLIMIT_FSIZE fails with EFBIG
/// instead of a signal, and children can be waited for even if the caller ignored SIGCHLD. Executed programs
/// get the defaults.
pub fn own_signals() -> io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing, so it may interrupt anything; the structure is a valid one
    // with an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
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

/// Kills every other process of the PID namespace, atomically, so that none can escape by forking. Only for its
/// process 1.
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

/// Joins a new session keyring, so that the caller's keys can't be reached.
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
/// Works once.
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

/// Closes the descriptors from `first` to `last`. By its number: musl has no function for it.
///
/// # Safety
/// Nothing may use a descriptor among them again.
pub(crate) unsafe fn close_range(first: u32, last: u32) -> libc::c_long {
    // SAFETY: the call takes three numbers; what they name is up to the caller.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }
}

/// Closes every descriptor but 0, 1, 2 and `kept`. For a process that was forked to become
/// something else: whatever held the others must not be used.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut from = 3;
    // Up to the largest positive number: not every kernel treats them as unsigned.
    for fd in kept.into_iter().chain([1 << 31]) {
        // SAFETY: callers own nothing else that they will use again, as documented.
        if from < fd && unsafe { close_range(from, fd - 1) } < 0 {
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

/// Whether two processes (or threads) are known to have the same memory, not a copy of it.
pub fn share_memory(one: u32, other: u32) -> bool {
    const VM: libc::c_int = 1;
    // SAFETY: a query that only takes numbers.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, VM, 0, 0) };
    order == 0
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
    // `as _`: glibc and musl have different types for the number.
    let result = unsafe { libc::setrlimit(resource as _, &raw const limit) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Gives the loopback interface one more address.
pub fn add_loopback_address(address: [u8; 4]) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    for (call, bytes) in [
        (libc::SIOCSIFADDR, address),
        (libc::SIOCSIFNETMASK, [255; 4]),
    ] {
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
            libc::ioctl(socket.as_raw_fd(), call as libc::Ioctl, &raw const request)
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
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            &raw const request,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
