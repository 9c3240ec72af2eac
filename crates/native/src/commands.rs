//! Lists of commands: what is covered, what is executable, and what is watched.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brig_linux::notify;
use brig_policy::Commands;
use brig_sandbox::commands::{Root, scan};
use brig_sandbox::{Error, Plan, Result};
use brig_wire::{Confine, Denied, Setup};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::gate::{Judge, SHIM};
use crate::interpreters::Found;
use crate::root::SYSTEM;

/// Where stand-ins are under the names of denied programs. First in `PATH`.
const FOLDER: &str = "/run/brig-denied";

/// A root file system as a sandbox has it, to look for commands in: a given one, or the host's.
pub fn command_root(rootfs: Option<&Path>) -> std::io::Result<Root> {
    open(rootfs, &Found::default())
}

fn open(rootfs: Option<&Path>, found: &Found) -> std::io::Result<Root> {
    let shown = rootfs.is_none().then(|| {
        let system = SYSTEM.iter().map(PathBuf::from);
        system.chain(found.folders().map(PathBuf::from)).collect()
    });
    let path = found.path();
    Root::open(rootfs.unwrap_or(Path::new("/")), path.split(':'), shown)
}

/// What a plan says about commands; nothing if it says nothing, and then nothing is watched.
pub fn judge(plan: &Plan, found: &Found) -> Result<Option<Judge>> {
    if !plan.watches_commands() {
        return Ok(None);
    }
    let none = Commands::default();
    let commands = plan.commands().unwrap_or(&none);
    let root = open(plan.rootfs().map(PathBuf::as_path), found)
        .map_err(|error| Error::io("look for commands", error))?
        .kept_in(plan.state().map(|state| state.join("commands")));
    Ok(Some(Judge {
        commands: commands.clone(),
        scan: scan(commands, &root),
        folder: FOLDER.into(),
        path: found.path().split(':').map(str::to_owned).collect(),
        shim: OnceLock::new(),
    }))
}

/// Puts the lists into what the guest is told.
pub fn apply(
    judge: &Judge,
    setup: &mut Setup,
    confine: &mut Confine,
    inherited: &mut Vec<OwnedFd>,
) -> Result<()> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let scan = &judge.scan;
    if !(scan.denied.is_empty() && scan.names.is_empty()) {
        let shim = shim().map_err(|error| Error::io("prepare the stand-in for commands", error))?;
        setup.denied = Some(Denied {
            shim: inherited.len() as u32,
            folder: FOLDER.into(),
            names: scan.names.keys().cloned().collect(),
            covered: scan.denied.keys().map(|path| text(path)).collect(),
        });
        inherited.push(shim);
    }
    confine.notify = notify::exec_filter(scan.allowed.is_some());
    if let Some(allowed) = &scan.allowed {
        let mut executable: Vec<String> = allowed.executable().map(text).collect();
        if setup.denied.is_some() {
            // All its names and covers are this one file.
            executable.push(format!("{FOLDER}/{SHIM}"));
        }
        confine.executable = Some(executable);
    }
    Ok(())
}

/// The stand-in as a sealed memory file, written once per process.
fn shim() -> std::io::Result<OwnedFd> {
    static SHIM: OnceLock<std::result::Result<OwnedFd, rustix::io::Errno>> = OnceLock::new();
    let write = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = std::fs::File::from(rustix::fs::memfd_create(c"brig-shim", flags)?);
        let written = file.write_all(brig_guest_image::SHIM);
        written.map_err(|_| rustix::io::Errno::NOMEM)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    };
    let shim = SHIM.get_or_init(write).as_ref();
    shim.map_err(|error| std::io::Error::from(*error))?
        .try_clone()
}
