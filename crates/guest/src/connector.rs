//! The connector makes a few system calls for the programs of one execution, after checking them.
//!
//! A mounted host directory may contain sockets of host programs. A seccomp filter can't check the
//! path of a `connect`, and if the kernel continued the call after a check, the program could change
//! the address in between. So the connector duplicates the socket, copies the address and opens the
//! path once each, checks what it has opened, and connects to exactly that. Locks and watches on
//! files that are shared with the host work the same way. Netlink sockets and filters are only counted
//! ([`crate::quotas`]).
//!
//! It runs in the guest's PID namespace and in the sandbox's control group. Programs can neither see
//! nor signal it. They can make it wait, but that delays only their own execution.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use brig_linux::mediate::{self, Request};
use brig_linux::notify::{Answer, Listener, Notification};
use brig_linux::process;
use brig_linux::socket::{self, LONGEST_ADDRESS};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::WatchFlags;
use rustix::fs::{FileType, FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketType, sockopt};
use rustix::thread::CapabilitySet;

use crate::mounts::{MountOrigin, SandboxMounts};
use crate::quotas::{self, Quotas};
use crate::{caller_files, confine, exit};

/// Calls that may block at once. More fail with EAGAIN.
const MAX_BLOCKED: usize = 64;
/// These threads make one call each.
const STACK: usize = 64 * 1024;
/// The least time between two syncs of host file systems, which slow the whole host down.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to get a lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Where the calls of one execution arrive.
#[derive(Debug)]
pub(crate) struct CallSource {
    pub listener: Listener,
    /// If the owner has the listener too: the socket over which it relays calls.
    pub relay: Option<OwnedFd>,
}

impl CallSource {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.relay {
            Some(relay) => relay.as_fd(),
            None => self.listener.as_fd(),
        }
    }

    /// Refuses the next call.
    pub(crate) fn refuse(&self, errno: Errno) -> std::io::Result<()> {
        if let Some(notification) = self.next()? {
            answer(&self.listener, notification.id, Err(errno));
        }
        Ok(())
    }

    /// Descriptors of the connector's own: the fork shares them with the guest.
    fn try_clone(&self) -> std::io::Result<Self> {
        let relay = self.relay.as_ref().map(OwnedFd::try_clone);
        Ok(Self {
            listener: self.listener.as_fd().try_clone_to_owned()?.into(),
            relay: relay.transpose()?,
        })
    }

    /// The next call. `None` if its caller is gone.
    fn next(&self) -> std::io::Result<Option<Notification>> {
        let Some(relay) = &self.relay else {
            return self.listener.receive();
        };
        let mut message = [0; mediate::RELAYED];
        let (_, length) = rustix::net::recv(relay, &mut message, RecvFlags::empty())?;
        if length != message.len() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(mediate::from_relay(&message)))
    }
}

pub(crate) fn run(source: &CallSource, mounts: &SandboxMounts) -> ! {
    let _ = rustix::thread::set_name(c"brig-connector");
    let Ok(source) = source.try_clone() else {
        exit(1)
    };
    let relay = source.relay.as_ref().map(AsFd::as_fd);
    let mut kept = vec![source.listener.as_fd()];
    kept.extend(relay);
    let writable = mounts.to_sync().iter().flatten();
    kept.extend(writable.map(|directory| directory.as_fd()));
    // Duplicating another process's descriptors and reading its memory needs SYS_PTRACE.
    if process::close_all_but(&kept).is_err()
        || confine::keep_capabilities(CapabilitySet::SYS_PTRACE).is_err()
    {
        exit(1)
    }
    source.listener.set_sync_wake_up();
    let mut connector = Connector {
        source: Arc::new(source),
        mounts: mounts.clone(),
        quotas: Quotas::default(),
        synced: Arc::default(),
    };
    while connector.serve_next().is_ok() {}
    exit(0)
}

struct Connector {
    source: Arc<CallSource>,
    mounts: SandboxMounts,
    quotas: Quotas,
    /// The last sync of host file systems.
    synced: Arc<Mutex<Option<Instant>>>,
}

/// A call that may block.
type BlockingCall = Box<dyn FnOnce(&Listener) -> Result<i64, Errno> + Send>;

/// The result of a call, or the call itself if it may block.
enum Reply {
    Now(Result<i64, Errno>),
    Later(BlockingCall),
    /// At once if there is no room for another: the caller can't try again.
    Always(BlockingCall),
}

impl Connector {
    /// Waits and serves once. Fails when the execution is over.
    fn serve_next(&mut self) -> std::io::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN)];
        if self.source.relay.is_some() {
            // Only for HUP, which means that the execution is over.
            let listener = self.source.listener.as_fd();
            fds.push(PollFd::from_borrowed_fd(listener, PollFlags::empty()));
        }
        match rustix::event::poll(&mut fds, None) {
            Err(Errno::INTR) => return Ok(()),
            polled => polled?,
        };
        let flags: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        if flags[0].contains(PollFlags::IN) {
            if let Some(notification) = self.source.next()? {
                self.serve(&notification);
            }
            return Ok(());
        }
        match flags.iter().all(PollFlags::is_empty) {
            true => Ok(()),
            false => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn serve(&mut self, notification: &Notification) {
        let thread = notification.thread;
        let done = match Request::of(notification) {
            Request::Netlink { kind, protocol } => {
                return quotas::netlink(&self.source.listener, notification.id, kind, protocol);
            }
            Request::Filter => {
                // Fails only if the caller is gone.
                let _ = self
                    .source
                    .listener
                    .answer(notification.id, self.quotas.filter());
                return;
            }
            Request::Connect {
                descriptor,
                address,
                length,
            } => self.connection(thread, descriptor, (address, length)),
            Request::Lock {
                descriptor,
                operation,
            } => self.lock(notification, descriptor, operation),
            Request::Watch {
                descriptor,
                path,
                mask,
            } => self.watch(thread, descriptor, path, mask),
            Request::Sync => Ok(self.sync()),
            Request::SyncFile { descriptor } => self.sync_file(thread, descriptor),
            Request::SendTo { .. } | Request::SendMessages { .. } | Request::Other => {
                Err(Errno::NOSYS)
            }
        };
        // If the caller still waits, what was taken and read is its own, and not from a later thread
        // with the same id.
        if !self.source.listener.is_pending(notification.id) {
            return;
        }
        match done.unwrap_or_else(|errno| Reply::Now(Err(errno))) {
            Reply::Now(result) => answer(&self.source.listener, notification.id, result),
            Reply::Later(work) => {
                if self.later(notification.id, work).is_some() {
                    answer(&self.source.listener, notification.id, Err(Errno::AGAIN));
                }
            }
            Reply::Always(work) => {
                if let Some(work) = self.later(notification.id, work) {
                    let listener = &self.source.listener;
                    answer(listener, notification.id, work(listener));
                }
            }
        }
    }

    /// In a thread of its own, because a program can make this block as long as it likes. Returns the
    /// call if no thread can be started.
    fn later(&self, id: u64, work: BlockingCall) -> Option<BlockingCall> {
        // The main thread and each blocked thread have a reference.
        if Arc::strong_count(&self.source) > MAX_BLOCKED {
            return Some(work);
        }
        let source = Arc::clone(&self.source);
        let work = Arc::new(Mutex::new(Some(work)));
        let taken = Arc::clone(&work);
        let thread = std::thread::Builder::new().stack_size(STACK);
        let started = thread.spawn(move || {
            let work = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(work) = work {
                answer(&source.listener, id, work(&source.listener));
            }
        });
        match started {
            Ok(_) => None,
            Err(_) => work.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

    fn connection(
        &mut self,
        thread: u32,
        descriptor: i32,
        (address, length): (u64, u32),
    ) -> Result<Reply, Errno> {
        let socket = caller_files::take_descriptor(thread, descriptor)?;
        let domain = sockopt::socket_domain(&socket)?;
        let mut bytes = [0; LONGEST_ADDRESS];
        let bytes = bytes.get_mut(..length as usize).ok_or(Errno::INVAL)?;
        caller_files::read_exact(thread, address, bytes)?;
        // A socket of any other family can only reach the sandbox's own network namespace.
        let (address, target) = match domain {
            AddressFamily::UNIX => self.unix_address(thread, &socket, bytes)?,
            _ => (bytes.to_vec(), None),
        };
        let blocks = may_block(&socket);
        let connect = move || {
            // The address refers to this descriptor, so it stays open.
            let _target = target;
            retry(|| socket::connect(&socket, &address)).map(|()| 0)
        };
        Ok(match blocks {
            true => Reply::Later(Box::new(move |_| connect())),
            false => Reply::Now(connect()),
        })
    }

    /// The checked address of a Unix socket, and the open file that it refers to.
    fn unix_address(
        &mut self,
        thread: u32,
        socket: &OwnedFd,
        bytes: &[u8],
    ) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
        // The filter forbids other types, because datagrams can be sent without `connect`.
        let kind = sockopt::socket_type(socket)?;
        if !matches!(kind, SocketType::STREAM | SocketType::SEQPACKET) {
            return Err(Errno::ACCESS);
        }
        let (family, name) = bytes.split_first_chunk().ok_or(Errno::INVAL)?;
        if u16::from_ne_bytes(*family) != AddressFamily::UNIX.as_raw() || name.is_empty() {
            return Err(Errno::INVAL);
        }
        let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if path.is_empty() {
            // An abstract name, which belongs to the sandbox's own network namespace.
            return Ok((bytes.to_vec(), None));
        }
        let target = caller_files::open(thread, path, OFlags::empty())?;
        let stat = rustix::fs::fstat(&target)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::CONNREFUSED);
        }
        if self.mounts.origin_of(thread, &target) != MountOrigin::Sandbox {
            return Err(Errno::ACCESS);
        }
        let mut address = family.to_vec();
        address.extend_from_slice(link_to(&target).as_bytes());
        address.push(0);
        Ok((address, Some(target)))
    }

    /// A lock blocks everybody who shares the file, also on the host. So it is allowed only where code
    /// may write anyway.
    fn lock(
        &mut self,
        notification: &Notification,
        descriptor: i32,
        operation: i32,
    ) -> Result<Reply, Errno> {
        let (id, thread) = (notification.id, notification.thread);
        let file = caller_files::take_descriptor(thread, descriptor)?;
        if !matches!(
            self.mounts.origin_of(thread, &file),
            MountOrigin::Sandbox | MountOrigin::Host { writable: true }
        ) {
            return Err(Errno::NOLCK);
        }
        const NONBLOCKING: i32 = 4;
        let wanted = match operation & !NONBLOCKING {
            1 => FlockOperation::NonBlockingLockShared,
            2 => FlockOperation::NonBlockingLockExclusive,
            8 => FlockOperation::Unlock,
            _ => return Err(Errno::INVAL),
        };
        Ok(match rustix::fs::flock(&file, wanted) {
            Err(Errno::AGAIN) if operation & NONBLOCKING == 0 => {
                let wait =
                    move |listener: &Listener| wait_for_lock(listener, id, thread, &file, wanted);
                Reply::Later(Box::new(wait))
            }
            done => Reply::Now(done.map(|()| 0)),
        })
    }

    /// A watch shows what others do with a file. So it is not allowed on the host's system files.
    fn watch(
        &mut self,
        thread: u32,
        descriptor: i32,
        path: u64,
        mask: u32,
    ) -> Result<Reply, Errno> {
        let inotify = caller_files::take_descriptor(thread, descriptor)?;
        let path = caller_files::read_path(thread, path)?;
        let mut mask = WatchFlags::from_bits_retain(mask);
        let mut flags = OFlags::empty();
        if mask.contains(WatchFlags::ONLYDIR) {
            flags |= OFlags::DIRECTORY;
        }
        if mask.contains(WatchFlags::DONT_FOLLOW) {
            flags |= OFlags::NOFOLLOW;
            mask -= WatchFlags::DONT_FOLLOW;
        }
        let target = caller_files::open(thread, &path, flags)?;
        if self.mounts.origin_of(thread, &target) == MountOrigin::Other {
            return Err(Errno::ACCESS);
        }
        let watch = rustix::fs::inotify::add_watch(&inotify, link_to(&target), mask)?;
        Ok(Reply::Now(Ok(watch.into())))
    }

    /// Syncs the writable host directories. Everything else is gone with the sandbox, and syncing all
    /// file systems of the host would let code slow down other users.
    fn sync(&self) -> Reply {
        let directories = self.mounts.to_sync().to_vec();
        if directories.is_empty() {
            return Reply::Now(Ok(0));
        }
        let synced = Arc::clone(&self.synced);
        Reply::Later(Box::new(move |_| {
            // The lock lets one thread sync at a time.
            let mut last = synced.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(early) = last.and_then(|last| SYNC_INTERVAL.checked_sub(last.elapsed())) {
                std::thread::sleep(early);
            }
            for directory in directories {
                rustix::fs::syncfs(&*directory?)?;
            }
            *last = Some(Instant::now());
            Ok(0)
        }))
    }

    /// Syncs one file. A file that the code can only read needs no sync: the code has not written it.
    fn sync_file(&mut self, thread: u32, descriptor: i32) -> Result<Reply, Errno> {
        let file = caller_files::take_descriptor(thread, descriptor)?;
        let stat = rustix::fs::fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::INVAL);
        }
        Ok(match self.mounts.origin_of(thread, &file) {
            MountOrigin::Host { writable: true } => Reply::Always(Box::new(move |_| {
                rustix::fs::fsync(&file)?;
                Ok(0)
            })),
            // Its own files are in memory.
            MountOrigin::Sandbox | MountOrigin::Host { writable: false } | MountOrigin::Other => {
                Reply::Now(Ok(0))
            }
        })
    }
}

fn answer(listener: &Listener, id: u64, result: Result<i64, Errno>) {
    let answer = match result {
        Ok(value) => Answer::Value(value),
        Err(errno) => Answer::Errno(errno.raw_os_error()),
    };
    // Fails only if the caller is gone.
    let _ = listener.answer(id, answer);
}

fn retry(mut call: impl FnMut() -> std::io::Result<()>) -> Result<(), Errno> {
    loop {
        match call().map_err(|error| caller_files::errno(&error)) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Waits for a lock as long as the caller does. A signal to the caller ends the wait, as it would end
/// `flock`. By polling: a blocking `flock` of ours could not be ended when the caller is gone.
fn wait_for_lock(
    listener: &Listener,
    id: u64,
    thread: u32,
    file: &OwnedFd,
    wanted: FlockOperation,
) -> Result<i64, Errno> {
    let mut pause = Duration::from_millis(1);
    loop {
        std::thread::sleep(pause);
        pause = (2 * pause).min(LOCK_INTERVAL);
        if !listener.is_pending(id) || caller_files::has_pending_signal(thread) {
            return Err(Errno::INTR);
        }
        match rustix::fs::flock(file, wanted) {
            Err(Errno::AGAIN) => {}
            done => return done.map(|()| 0),
        }
    }
}

/// A path that refers to an open file.
fn link_to(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Whether `connect` may block. A program can change the flag afterwards, but then it only delays
/// itself.
fn may_block(socket: &OwnedFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(socket);
    flags.is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
        && !matches!(sockopt::socket_type(socket), Ok(SocketType::DGRAM))
}
