//! Relays mediated calls to the connector in the sandbox. The owner receives them only because a
//! process can have just one seccomp listener.

use std::os::fd::OwnedFd;

use brig_linux::mediate;
use brig_linux::notify::Notification;
use brig_linux::process_stat::read_proc_text;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// The connector answers. Never blocks: if the connector does not keep up, the call fails, and the
/// program has to try again.
pub(super) fn relay(notification: &Notification, connector: Option<&OwnedFd>) -> Result<(), Errno> {
    let thread = id_for_guest(notification.thread).ok_or(Errno::SRCH)?;
    let message = mediate::to_relay(notification, thread);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(connector.ok_or(Errno::NOSYS)?, &message, flags)?;
    Ok(())
}

/// The id of a thread in the guest's PID namespace, one level above its own.
fn id_for_guest(thread: u32) -> Option<u32> {
    let status = read_proc_text(format!("/proc/{thread}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().rev().nth(1)?.parse().ok()
}
