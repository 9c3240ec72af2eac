//! A place that a container engine has built: it is checked, not changed.

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::Container;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::setup::network;
use crate::{Failure, Step};

/// Returns the doors, opened.
pub fn check(container: &Container) -> Result<Vec<OwnedFd>, Failure> {
    // Only process 1 cannot be killed by what runs beside it.
    if !rustix::process::getpid().is_init() {
        return refuse("be process 1 of the container");
    }
    if rustix::process::geteuid().is_root() {
        return refuse("be an ordinary user");
    }
    powerless()?;
    for (path, (device, inode)) in &container.mounts {
        let found = rustix::fs::stat(path.as_str()).step(format!("look at {path}"))?;
        if (found.st_dev, found.st_ino) != (*device, *inode) {
            return refuse(format!(
                "find in {path} what was checked: it has been replaced"
            ));
        }
    }
    network::listen_on(&container.doors)
}

/// No capability, and no way to gain one.
fn powerless() -> Result<(), Failure> {
    let sets = rustix::thread::capabilities(None).step("look at capabilities")?;
    let none = CapabilitySet::empty();
    if sets.effective != none || sets.permitted != none || sets.inheritable != none {
        return refuse("run without capabilities");
    }
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) => return refuse("run without capabilities to gain"),
            Ok(false) => {}
            // The first number that this kernel does not know.
            Err(_) => break,
        }
    }
    match rustix::thread::no_new_privs().step("look at no_new_privs")? {
        true => Ok(()),
        false => refuse("run with no_new_privs"),
    }
}

fn refuse<T>(step: impl Into<String>) -> Result<T, Failure> {
    Err(io::Error::from(Errno::PERM)).step(step)
}
