//! Sets the sandbox up: identity, network, root. Runs once, before anything untrusted. Every failure
//! ends the sandbox.

mod copy;
mod denied;
mod disk;
mod handoff;
pub(crate) mod network;
mod root;
mod routes;
mod sources;

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{Hello, Mediation, RootSource, Setup};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::CapabilitySet;

use crate::container_init::ContainerInit;
use crate::{Failure, Step, confine};

pub(crate) fn run(
    hello: &Hello,
    handoff: Option<&OwnedFd>,
    mounts: Vec<OwnedFd>,
) -> Result<Option<ContainerInit>, Failure> {
    let _ = rustix::thread::set_name(c"brig-guest");
    let container = match (&hello.root, handoff) {
        (RootSource::Setup(setup), Some(handoff)) => {
            // So that signals of the caller's terminal and its job control don't reach the sandbox.
            rustix::process::setsid().step("leave the caller's session")?;
            build(setup, &hello.workspace, handoff, mounts)?;
            let kept = match hello.confine.mediation {
                Mediation::None => confine::GUEST_CAPABILITIES,
                // For the connector.
                _ => confine::GUEST_CAPABILITIES | CapabilitySet::SYS_PTRACE,
            };
            confine::keep_capabilities(kept).step("limit capabilities")?;
            None
        }
        (RootSource::Container(container), None) => {
            let watches = !hello.confine.notify.is_empty();
            Some(ContainerInit::open(container, watches)?)
        }
        _ => return Err(io::Error::from(Errno::INVAL)).step("check the setup"),
    };
    // Programs run as the same user. They must not read or trace the guest.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step("become undumpable")?;
    Ok(container)
}

fn build(
    setup: &Setup,
    workspace: &str,
    handoff: &OwnedFd,
    mounts: Vec<OwnedFd>,
) -> Result<(), Failure> {
    // The modes in the steps are exact.
    rustix::process::umask(rustix::fs::Mode::empty());
    // Before anything is cloned: a clone receives the mount events that its original receives.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("make mounts private")?;
    // Host directories are opened with the caller's permissions. Everything else is done as the
    // sandbox's user.
    let mut inherited: Vec<Option<OwnedFd>> = mounts.into_iter().map(Some).collect();
    let shim = match &setup.denied {
        Some(denied) => Some(sources::take(&mut inherited, denied.shim)?),
        None => None,
    };
    let sources = sources::open_all(setup, inherited)?;
    become_user(setup)?;
    limit_kernel_objects()?;
    network::open(&setup.network, handoff)?;
    rustix::system::sethostname(setup.hostname.as_bytes()).step("set the host name")?;
    root::assemble(setup, sources, shim.as_ref(), workspace, handoff)
}

/// The kernel also counts these against the limits of the caller on the host.
fn limit_kernel_objects() -> Result<(), Failure> {
    for (name, most) in [
        ("max_user_namespaces", "0"),
        ("max_net_namespaces", "0"),
        // A user has 128 by default.
        ("max_inotify_instances", "16"),
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
