//! Confinement of a program, in addition to its namespaces. Applied to the process that is about to
//! execute it.

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::Confine;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{Failure, Step};

/// What the guest keeps: to create namespaces and mounts for executions, and to drop capabilities.
pub(crate) const GUEST_CAPABILITIES: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETPCAP);

/// Drops all capabilities but these, for this process and what it executes.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if kept.contains(one) {
            continue;
        }
        // Asked first: in a keeper most are gone already, and each removal copies the credentials.
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The first capability that this kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// No capabilities, and no way to gain one.
pub(crate) fn drop_privileges() -> Result<(), Failure> {
    keep_capabilities(CapabilitySet::empty()).step("drop capabilities")?;
    rustix::thread::set_no_new_privs(true).step("set no_new_privs")
}

pub(crate) fn rlimits(confine: &Confine) -> Result<(), Failure> {
    for limit in &confine.rlimits {
        brig_linux::process::set_rlimit(limit.resource, limit.value)
            .step(format!("set resource limit {}", limit.resource))?;
    }
    Ok(())
}

/// Programs can write only where the plan allows it, and can't signal or connect to processes outside.
pub(crate) fn landlock(confine: &Confine) -> Result<(), Failure> {
    if confine.landlock == 0 {
        return Ok(());
    }
    restrict(confine)
        .map_err(io::Error::other)
        .step("enter the Landlock domain")
}

fn restrict(confine: &Confine) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let abi = ABI::from(i32::try_from(confine.landlock)?);
    let all = AccessFs::from_all(abi);
    let mut handled = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?;
    // Kernels before 6.12 have no scopes, and an empty set is an error.
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        handled = handled.scope(scopes)?;
    }
    // With a list of executables, writable directories must not be executable either.
    let (read, all) = match confine.executable {
        Some(_) => (
            AccessFs::from_read(abi) & !AccessFs::Execute,
            all & !AccessFs::Execute,
        ),
        None => (AccessFs::from_read(abi), all),
    };
    let mut ruleset = handled
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, read))?;
    for path in confine.executable.iter().flatten() {
        if let Ok(fd) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(fd, AccessFs::Execute))?;
        }
    }
    for path in &confine.writable {
        // What does not exist can't be written.
        let Ok(fd) = PathFd::new(path) else {
            continue;
        };
        let folder = rustix::fs::fstat(&fd)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        let access = if folder {
            all & !forbidden(confine, path)
        } else {
            AccessFs::from_file(abi) & all
        };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, access))?;
    }
    ruleset.no_new_privs(false).restrict_self()?;
    Ok(())
}

/// What must not be created in a directory or in a mount below it: in host directories no sockets,
/// because host programs would take them for their own.
fn forbidden(confine: &Confine, folder: &str) -> BitFlags<AccessFs> {
    let mut host = confine.host_directories.iter().filter(|host| host.writable);
    if host.any(|host| std::path::Path::new(&host.path).starts_with(folder)) {
        AccessFs::MakeSock.into()
    } else {
        BitFlags::empty()
    }
}

/// Installs the filter that notifies. The holder of the returned listener answers.
pub(crate) fn notify(confine: &Confine) -> Result<Option<OwnedFd>, Failure> {
    if confine.notify.is_empty() {
        return Ok(None);
    }
    let listener = brig_linux::seccomp::install_listened(&confine.notify);
    listener.map(Some).step("install the filter that asks")
}

/// From here on, only the system calls of the profile are allowed.
pub(crate) fn seccomp(confine: &Confine) -> Result<(), Failure> {
    if confine.seccomp.is_empty() {
        return Ok(());
    }
    brig_linux::seccomp::install(&confine.seccomp).step("install the seccomp filter")
}
