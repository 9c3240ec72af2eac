//! Handing descriptors to the outside.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use brig_wire::MAX_DOORS;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::{Failure, Step};

/// Sends descriptors with a letter that says what they are.
pub fn send(handoff: &OwnedFd, what: u8, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DOORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let letter = [what];
    let letter = [IoSlice::new(&letter)];
    rustix::net::sendmsg(handoff, &letter, &mut control, SendFlags::empty())
        .step("hand out descriptors")?;
    Ok(())
}
