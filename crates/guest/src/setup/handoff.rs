//! Hands descriptors to the owner.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use brig_wire::MAX_LISTENERS;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::{Failure, Step};

/// Sends descriptors with a byte that says what they are.
pub(super) fn send(
    handoff: &OwnedFd,
    what: u8,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Failure> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let kind = [what];
    let kind = [IoSlice::new(&kind)];
    rustix::net::sendmsg(handoff, &kind, &mut control, SendFlags::empty())
        .step("hand out descriptors")?;
    Ok(())
}
