//! Starts connectors. Keepers send the listeners of their executions here, and the first mediated
//! call of an execution starts the process that makes its calls ([`crate::connector`]). Most
//! executions make none, and so need no connector.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_linux::clone::{self, Fork};
use brig_linux::notify::Listener;
use brig_wire::{Hello, Mediation};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::connector::{self, CallSource};
use crate::mounts::SandboxMounts;
use crate::{Failure, Step};

/// Where a keeper sends the listener of its seccomp filter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListenerHandoff<'a> {
    /// Who is notified about starts of programs: the owner, or in a container the guest.
    pub supervisor: Option<&'a OwnedFd>,
    /// [`Connectors`].
    pub connectors: Option<&'a OwnedFd>,
}

impl<'a> ListenerHandoff<'a> {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'a>> {
        [self.supervisor, self.connectors]
            .into_iter()
            .flatten()
            .map(AsFd::as_fd)
    }

    /// A process can have only one listener. If the supervisor has it, it relays mediated calls to the
    /// connector over a socket.
    pub(crate) fn send(&self, listener: &OwnedFd, id: u32) -> Result<(), Failure> {
        let Some(connectors) = self.connectors else {
            return match self.supervisor {
                Some(supervisor) => send_descriptors(supervisor, &[listener.as_fd()], id),
                None => Ok(()),
            };
        };
        let Some(supervisor) = self.supervisor else {
            return send_descriptors(connectors, &[listener.as_fd()], id);
        };
        let (outside, inside) = pair().step("make a socket")?;
        send_descriptors(connectors, &[listener.as_fd(), inside.as_fd()], id)?;
        send_descriptors(supervisor, &[listener.as_fd(), outside.as_fd()], id)
    }
}

fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn send_descriptors(to: &OwnedFd, descriptors: &[BorrowedFd<'_>], id: u32) -> Result<(), Failure> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let number = id.to_le_bytes();
    let parts = [IoSlice::new(&number)];
    let sent = rustix::net::sendmsg(to, &parts, &mut control, SendFlags::NOSIGNAL);
    sent.map(drop).step("pass descriptors")
}

#[derive(Debug)]
pub(crate) struct Connectors {
    mounts: SandboxMounts,
    /// The end for keepers.
    send: OwnedFd,
    receive: OwnedFd,
    /// Executions without a connector yet.
    waiting: Vec<CallSource>,
}

impl Connectors {
    /// To be called before anything untrusted runs.
    pub(crate) fn open(hello: &Hello) -> Result<Option<Self>, Failure> {
        if hello.confine.mediation == Mediation::None {
            return Ok(None);
        }
        let Some(mounts) = SandboxMounts::read(hello)? else {
            return Ok(None);
        };
        let (receive, send) = pair().step("make a socket")?;
        Ok(Some(Self {
            mounts,
            send,
            receive,
            waiting: Vec::new(),
        }))
    }

    pub(crate) fn handoff(&self) -> &OwnedFd {
        &self.send
    }

    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.receive.as_fd()).chain(self.waiting.iter().map(CallSource::as_fd))
    }

    /// A listener has arrived, or the first call of an execution. Returns the connector that was
    /// started for it, to be reaped.
    pub(crate) fn serve(&mut self) -> Option<(u32, OwnedFd)> {
        self.take_listener();
        let mut index = 0;
        while let Some(source) = self.waiting.get(index) {
            let state = poll_flags(source.as_fd());
            if state.is_empty() {
                index += 1;
                continue;
            }
            let source = self.waiting.swap_remove(index);
            if !state.contains(PollFlags::IN) {
                continue;
            }
            match self.start(&source) {
                Ok(Fork::Parent { pid, pidfd }) => return Some((pid, pidfd)),
                // Probably at the limit of processes. The call fails, the next one tries again.
                _ => {
                    if source.refuse(Errno::AGAIN).is_ok() {
                        self.waiting.push(source);
                    }
                    return None;
                }
            }
        }
        None
    }

    fn start(&self, source: &CallSource) -> io::Result<Fork> {
        match clone::fork(0)? {
            Fork::Child => connector::run(source, &self.mounts),
            parent => Ok(parent),
        }
    }

    fn take_listener(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; 4];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut number)];
        if rustix::net::recvmsg(&self.receive, &mut parts, &mut control, flags).is_err() {
            return;
        }
        let mut descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        if let Some(listener) = descriptors.next() {
            self.waiting.push(CallSource {
                listener: Listener::from(listener),
                relay: descriptors.next(),
            });
        }
    }
}

/// Without waiting.
fn poll_flags(fd: BorrowedFd<'_>) -> PollFlags {
    const NOW: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&NOW)) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}
