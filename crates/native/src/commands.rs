//! Command lists: which files are covered, which are executable, and what is watched.

use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brig_guest_host::commands::{Root, Scan, scan};
use brig_guest_host::tools::PROGRAM;
use brig_linux::mediate::{self, MediatedCalls};
use brig_linux::notify;
use brig_policy::Commands;
use brig_sandbox::{Error, Location, Plan, Result};
use brig_wire::{Confine, DeniedPrograms, Mediation, Setup};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::gate::{CommandDecider, SHIM};
use crate::interpreters::FoundInterpreters;
use crate::limits::writable;
use crate::root::SYSTEM;

/// The directory of stand-ins, under the names of denied programs. First in `PATH`.
const STAND_INS: &str = "/run/brig-denied";

/// The directory of the program that calls tools. Only the guest can write there.
pub(crate) const TOOLS: &str = "/run/brig/tools/bin";

/// The root file system in which commands are searched: a given one, or the host's.
pub fn command_root(rootfs: Option<&Path>) -> std::io::Result<Root> {
    open(rootfs, &FoundInterpreters::default())
}

fn open(rootfs: Option<&Path>, found: &FoundInterpreters) -> std::io::Result<Root> {
    let shown = rootfs.is_none().then(|| {
        let system = SYSTEM.iter().map(PathBuf::from);
        let folders = found.folders().iter();
        system
            .chain(folders.map(|folder| folder.source.clone()))
            .collect()
    });
    let path = found.path();
    Root::open(rootfs.unwrap_or(Path::new("/")), path.split(':'), shown)
}

/// The command lists of a plan. `None` without lists; then nothing is watched.
pub(crate) fn decider(plan: &Plan, found: &FoundInterpreters) -> Result<Option<CommandDecider>> {
    if !plan.watches_commands() {
        return Ok(None);
    }
    let none = Commands::default();
    let commands = plan.commands().unwrap_or(&none);
    let root = open(plan.rootfs().map(|rootfs| rootfs.source.as_path()), found)
        .map_err(|error| Error::io("look for commands", error))?
        .kept_in(plan.state().map(|state| state.join("commands")));
    let mut scan = scan(commands, &root);
    if scan.allowed.is_some() {
        keep_fixed(plan, found, Arc::make_mut(&mut scan))?;
    }
    if !plan.tools().is_empty()
        && let Some(allowed) = &mut Arc::make_mut(&mut scan).allowed
    {
        allowed.programs.insert(Path::new(TOOLS).join(PROGRAM));
    }
    Ok(Some(CommandDecider {
        commands: commands.clone(),
        scan,
        stand_ins: STAND_INS.into(),
        path: found.path().split(':').map(str::to_owned).collect(),
        known: OnceLock::new(),
        writable: writable(plan, found)
            .into_iter()
            .map(PathBuf::from)
            .collect(),
    }))
}

/// Refuses files on an allowlist that the code could change: in a writable mount, or through another path.
fn keep_fixed(plan: &Plan, found: &FoundInterpreters, scan: &mut Scan) -> Result<()> {
    let Some(allowed) = &mut scan.allowed else {
        return Ok(());
    };
    let writable = writable(plan, found);
    let fixed = |path: &PathBuf| {
        let mut places = writable.iter().map(Path::new);
        !places.any(|place| place != Path::new("/") && path.starts_with(place))
    };
    allowed.programs.retain(fixed);
    allowed.interpreters.retain(fixed);
    allowed.loaders.retain(fixed);
    allowed
        .requested_scripts
        .retain(|requested| fixed(&requested.script) && fixed(&requested.program));

    let mounts = plan.mounts().iter().filter(|mount| mount.writable);
    let workspace = plan.workspace().filter(|mount| mount.writable);
    let failed = |error| Error::io("look where allowed commands are", error);
    let given = mounts.chain(workspace).map(|mount| &*mount.source);
    let given: Vec<(&Path, Location)> = given
        .map(|source| Ok((source, Location::of(source).map_err(failed)?)))
        .collect::<Result<_>>()?;
    if given.is_empty() {
        return Ok(());
    }
    for path in allowed.executable() {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let file = plan
            .rootfs()
            .map_or(path.to_owned(), |root| root.source.join(inside));
        // By location in the file system, because a bind mount shows the same file at another path.
        let at = match Location::of(&file) {
            Ok(at) => at,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        let below =
            |(folder, place): &&(&Path, Location)| file.starts_with(folder) || at.is_below(place);
        let beside = |(_, place): &&(&Path, Location)| at.is_beside(place);
        let problem = if let Some((folder, _)) = given.iter().find(below) {
            format!(
                "is in the writable directory `{}`, so the code could overwrite it; mount it \
                 read-only",
                folder.display()
            )
        } else if let Some((folder, _)) = given.iter().find(beside)
            && may_be_linked(&file)
        {
            format!(
                "has several hard links, and one may be in the writable directory `{}`, so the \
                 code could overwrite it; mount that read-only, or replace the file by a copy of it",
                folder.display()
            )
        } else {
            continue;
        };
        return Err(Error::InvalidConfig {
            what: "command_allowlist",
            problem: format!("`{}` {problem}", file.display()),
        });
    }
    Ok(())
}

/// Whether a file has hard links through which the code could write to it. A sandbox of root may write root's
/// files in its mounts; those of other users may not.
fn may_be_linked(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|file| {
        let of_another = file.uid() == 0 && !rustix::process::geteuid().is_root();
        file.nlink() > 1 && !(of_another && file.mode() & 0o022 == 0)
    })
}

/// Adds the lists to the setup and the confinement.
pub(crate) fn apply(
    decider: &CommandDecider,
    setup: &mut Setup,
    confine: &mut Confine,
    inherited: &mut Vec<OwnedFd>,
    mediated: MediatedCalls,
) -> Result<()> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let scan = &decider.scan;
    if decider.denies() {
        let shim = shim().map_err(|error| Error::io("prepare the stand-in for commands", error))?;
        setup.denied = Some(DeniedPrograms {
            shim: u32::try_from(inherited.len()).unwrap_or(u32::MAX),
            directory: STAND_INS.into(),
            names: scan.names.keys().cloned().collect(),
            covered: (scan.denied.keys())
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .collect(),
            elsewhere: Vec::new(),
        });
        inherited.push(shim);
    }
    // A process can have only one seccomp listener. The owner has it, and relays the other calls.
    confine.watches_commands = true;
    let lists = scan.allowed.is_some() || decider.denies();
    confine.notify = notify::exec_filter(lists, &mediate::rules(mediated));
    confine.mediation = Mediation::Relayed;
    if let Some(allowed) = &scan.allowed {
        let mut executable: Vec<String> = allowed.executable().map(text).collect();
        if setup.denied.is_some() {
            // All stand-ins are links to or mounts of this file.
            executable.push(format!("{STAND_INS}/{SHIM}"));
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
