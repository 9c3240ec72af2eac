//! Assembling the place: identity, namespaces' contents, the root. Runs once, before anything
//! untrusted; every failure ends the sandbox.

mod copy;
mod denied;
mod disk;
mod handoff;
pub mod network;
mod root;
mod sources;

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{Hello, Place, Setup};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid};

use crate::yard::Yard;
use crate::{Failure, Step, confine};

pub fn run(
    hello: &Hello,
    handoff: Option<&OwnedFd>,
    mounts: Vec<OwnedFd>,
) -> Result<Option<Yard>, Failure> {
    let _ = rustix::thread::set_name(c"brig-guest");
    let yard = match (&hello.place, handoff) {
        (Place::Own(setup), Some(handoff)) => {
            // Neither signals of the caller's terminal nor its job control reach in.
            rustix::process::setsid().step("leave the caller's session")?;
            build(setup, &hello.workspace, handoff, mounts)?;
            None
        }
        (Place::Container(container), None) => {
            let watches = !hello.confine.notify.is_empty();
            Some(Yard::open(container, watches)?)
        }
        _ => return Err(io::Error::from(Errno::INVAL)).step("find the place"),
    };
    // The code beside us runs as the same user: it must not read or trace us.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step("become undumpable")?;
    Ok(yard)
}

fn build(
    setup: &Setup,
    workspace: &str,
    handoff: &OwnedFd,
    mounts: Vec<OwnedFd>,
) -> Result<(), Failure> {
    // The modes given in the steps are exact.
    rustix::process::umask(rustix::fs::Mode::empty());
    // Folders of the host are opened with the caller's rights, everything else is done as the
    // user that the sandbox runs as.
    let mut inherited: Vec<Option<OwnedFd>> = mounts.into_iter().map(Some).collect();
    let shim = match &setup.denied {
        Some(denied) => Some(sources::take(&mut inherited, denied.shim)?),
        None => None,
    };
    let sources = sources::open_all(setup, inherited)?;
    become_user(setup)?;
    cap_counts()?;
    brig_linux::process::loopback_up().step("bring up loopback")?;
    if let Some(network) = &setup.network {
        network::open(network, handoff)?;
    }
    rustix::system::sethostname(setup.hostname.as_bytes()).step("set the host name")?;
    root::assemble(setup, sources, shim.as_ref(), workspace, handoff)?;
    confine::keep_capabilities(confine::GUEST_CAPABILITIES).step("limit capabilities")
}

/// What a sandbox uses of these counts against its caller's own budget outside.
fn cap_counts() -> Result<(), Failure> {
    for (name, most) in [
        ("max_user_namespaces", "0"),
        ("max_net_namespaces", "0"),
        ("max_inotify_instances", "64"),
        ("max_inotify_watches", "16384"),
    ] {
        std::fs::write(format!("/proc/sys/user/{name}"), most).step(format!("set {name}"))?;
    }
    Ok(())
}

fn become_user(setup: &Setup) -> Result<(), Failure> {
    if setup.drop_groups {
        rustix::thread::set_thread_groups(&[]).step("give up groups")?;
    }
    let (uid, gid) = (Uid::from_raw(setup.uid), Gid::from_raw(setup.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("change group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("change user")
}
