//! Receives the descriptors that a guest hands out. Their number is limited, and they are not trusted.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use brig_sandbox::{Error, Result};
use brig_wire::MAX_LISTENERS;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// The next message: the kind of its descriptors, and the descriptors.
pub(crate) fn take(handoff: &OwnedFd) -> Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut kind = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(
        handoff,
        &mut [IoSliceMut::new(&mut kind)],
        &mut control,
        flags,
    );
    match received {
        Ok(message) if message.bytes == 0 => return Ok(None),
        Ok(_) => {}
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(Error::io("take the guest's descriptors", error)),
    }
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Ok(Some((kind[0], descriptors.collect())))
}
