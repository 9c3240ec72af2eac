//! Taking the descriptors that a guest hands out. What it sends is counted, never trusted.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use brig_sandbox::{Error, Result};
use brig_wire::MAX_DOORS;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// The next message: what it says its descriptors are, and they.
pub fn take(handoff: &OwnedFd) -> Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DOORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut letter = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(
        handoff,
        &mut [IoSliceMut::new(&mut letter)],
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
    Ok(Some((letter[0], descriptors.collect())))
}
