//! Mounts that root creates for the guest: opened with root's permissions, and idmapped to the id of the
//! sandbox.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use brig_linux::mount::{NO_DEVICES, NO_SUID};
use brig_linux::user_namespace::NamespaceProcess;
use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Plan, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::identity::{Identity, ranges};

const UNMAPPED: &str = "its file system does not support idmapped mounts, and only its owner may \
                        write there; start Brig as the owner, let others write (chmod o+w), or \
                        mount it read-only";

const UNMOUNTABLE: &str = "root may make no mounts here, as in most containers, and only its owner may write there; \
                           start Brig as the owner (docker run --user), let others write (chmod o+w), or mount \
                           it read-only";

/// What root has opened for a sandbox. Empty for other users.
#[derive(Debug, Default)]
pub(crate) struct Detached {
    pub workspace: Option<OwnedFd>,
    /// Lowest first. Empty if the sandbox runs as their owner anyway.
    pub layers: Vec<OwnedFd>,
    /// In the order of the plan. `None` if the guest opens it.
    pub mounts: Vec<Option<OwnedFd>>,
    /// Processes of the user namespaces, which are about to end. Dropping waits for them, which is faster later.
    pub ending: Vec<NamespaceProcess>,
}

/// Opens the mounts and layers of a plan, and chooses the id of the sandbox: one of its own, or that of saved
/// files if something can't be idmapped.
pub(crate) fn open(plan: &Plan) -> Result<(Identity, Detached)> {
    let own = Identity::of_caller();
    if !own.is_root() {
        return Ok((own, Detached::default()));
    }
    if own.is_own()
        && let Some(detached) = open_as(&own, plan)?
    {
        return Ok((own, detached));
    }
    let shared = Identity::shared();
    let detached = open_as(&shared, plan)?.ok_or_else(|| Error::Setup {
        step: "open the mounts".into(),
        problem: "they can be mapped neither to a separate id nor to their owner".into(),
    })?;
    Ok((shared, detached))
}

/// `None` if the sandbox has to run as the owner of saved files.
fn open_as(identity: &Identity, plan: &Plan) -> Result<Option<Detached>> {
    let mut opener = Opener::new(identity);
    let mut detached = Detached::default();
    if identity.is_own() {
        for layer in plan.initial().directories() {
            let Some(layer) = opener.layer(layer)? else {
                return Ok(None);
            };
            detached.layers.push(layer);
        }
    }
    if let Some(workspace) = plan.workspace() {
        let Some(workspace) = opener.mount(workspace)? else {
            return Ok(None);
        };
        detached.workspace = workspace.tree();
    }
    for mount in plan.mounts() {
        let Some(mount) = opener.mount(mount)? else {
            return Ok(None);
        };
        detached.mounts.push(mount.tree());
    }
    detached.ending = opener.ending;
    Ok(Some(detached))
}

/// Whether the file system of a directory supports idmapped mounts.
pub(crate) fn maps(directory: &Path) -> io::Result<bool> {
    let (tree, stat) = clone(directory, OpenTreeFlags::empty(), None)?;
    Opener::new(&Identity::of_caller()).map_owner(&tree, &stat)
}

/// Who has opened a mount.
enum Opened {
    Root(OwnedFd),
    /// A root that may not mount: the guest can, in its own namespace, and with the permissions of the sandbox's
    /// user.
    Guest,
}

impl Opened {
    fn tree(self) -> Option<OwnedFd> {
        match self {
            Self::Root(tree) => Some(tree),
            Self::Guest => None,
        }
    }
}

struct Opener<'a> {
    identity: &'a Identity,
    /// User namespaces, by the owner that they show as the sandbox's user.
    mappings: HashMap<(u32, u32), OwnedFd>,
    ending: Vec<NamespaceProcess>,
}

impl<'a> Opener<'a> {
    fn new(identity: &'a Identity) -> Self {
        Self {
            identity,
            mappings: HashMap::new(),
            ending: Vec::new(),
        }
    }

    /// `None` if the sandbox has to run as the owner of saved files.
    fn mount(&mut self, mount: &CheckedMount) -> Result<Option<Opened>> {
        let refuse = |error: io::Error| Error::MountRefused {
            path: mount.source.display().to_string(),
            problem: error.to_string(),
        };
        let checked = Some((mount.device, mount.inode));
        let (opened, stat, problem) =
            match clone(&mount.source, OpenTreeFlags::AT_RECURSIVE, checked) {
                Ok((tree, stat)) if self.map_owner(&tree, &stat).map_err(refuse)? => {
                    return Ok(Some(Opened::Root(tree)));
                }
                Ok((tree, stat)) => (Opened::Root(tree), stat, UNMAPPED),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                    let stat = rustix::fs::lstat(&mount.source);
                    (
                        Opened::Guest,
                        stat.map_err(|error| refuse(error.into()))?,
                        UNMOUNTABLE,
                    )
                }
                Err(error) => return Err(refuse(error)),
            };
        // The files keep their owners, and their permissions decide. New files must not belong to an id that
        // another sandbox can get later.
        let saved = self.identity.saved.map(|(uid, _)| uid);
        if self.identity.is_own() && (mount.writable || Some(stat.st_uid) == saved) {
            return Ok(None);
        }
        let theirs = stat.st_uid == self.identity.uid || stat.st_mode & 0o002 != 0;
        if mount.writable && !theirs {
            return Err(refuse(io::Error::other(problem)));
        }
        Ok(Some(opened))
    }

    /// `None` if the sandbox has to run as the owner of saved files.
    fn layer(&mut self, layer: &Path) -> Result<Option<OwnedFd>> {
        let shown = clone(layer, OpenTreeFlags::empty(), None)
            .and_then(|(tree, stat)| Ok(self.map_owner(&tree, &stat)?.then_some(tree)));
        match shown {
            // A root that may not mount: the guest can, in its own namespace.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => Ok(None),
            shown => shown.map_err(|error| Error::Setup {
                step: "show the saved files to the sandbox's user".into(),
                problem: error.to_string(),
            }),
        }
    }

    /// Maps the owner of a tree to the sandbox's user. Not every file system supports it, and root in a container
    /// may not.
    fn map_owner(&mut self, tree: &OwnedFd, stat: &Stat) -> io::Result<bool> {
        let owner = (stat.st_uid, stat.st_gid);
        let mapping = match self.mappings.entry(owner) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (mapping, ending) = mapping(owner, self.identity)?;
                self.ending.push(ending);
                new.insert(mapping)
            }
        };
        match brig_linux::mount::map_ids(tree, mapping) {
            Ok(()) => Ok(true),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INVAL | Errno::PERM) => Ok(false),
                _ => Err(error),
            },
        }
    }
}

/// Clones a directory or file as a mount. Fails if it was replaced since it was checked.
fn clone(
    path: &Path,
    recursive: OpenTreeFlags,
    checked: Option<(u64, u64)>,
) -> io::Result<(OwnedFd, Stat)> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&found)?;
    if checked.is_some_and(|checked| checked != (stat.st_dev, stat.st_ino)) {
        return Err(io::Error::other("it was replaced after it was checked"));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | recursive;
    let tree = rustix::mount::open_tree(&found, "", flags)?;
    // First of all: until then it is a peer of the host's own mount.
    brig_linux::mount::restrict(&tree, NO_SUID | NO_DEVICES)?;
    Ok((tree, stat))
}

/// A user namespace that maps the owner of a directory to the sandbox's user. All other ids stay, so that the
/// owner's access to other files in it is the same as outside.
fn mapping((uid, gid): (u32, u32), identity: &Identity) -> io::Result<(OwnedFd, NamespaceProcess)> {
    let mut process = NamespaceProcess::start()?;
    let folder = format!("/proc/{}", process.pid());
    for (map, owner, shown) in [
        ("uid_map", uid, identity.uid),
        ("gid_map", gid, identity.gid),
    ] {
        let own = std::fs::read_to_string(format!("/proc/self/{map}"))?;
        std::fs::write(format!("{folder}/{map}"), swap(&own, owner, shown))?;
    }
    let namespace = File::open(format!("{folder}/ns/user"))?;
    process.end();
    Ok((namespace.into(), process))
}

/// A map of all ids of `own` to themselves, except two that are swapped.
fn swap(own: &str, one: u32, other: u32) -> String {
    let (one, other) = (u64::from(one), u64::from(other));
    let mut map = String::new();
    for (first, end) in ranges(own) {
        let mut from = first;
        for (id, partner) in [
            (one.min(other), one.max(other)),
            (one.max(other), one.min(other)),
        ] {
            if (from..end).contains(&id) {
                if from < id {
                    map += &format!("{from} {from} {}\n", id - from);
                }
                map += &format!("{id} {partner} 1\n");
                from = id + 1;
            }
        }
        if from < end {
            map += &format!("{from} {from} {}\n", end - from);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::swap;

    #[test]
    fn two_ids_change_places_and_the_others_stay() {
        let all = "         0          0 4294967295\n";
        assert_eq!(
            swap(all, 1000, 60999),
            "0 0 1000\n1000 60999 1\n1001 1001 59998\n60999 1000 1\n61000 61000 4294906295\n"
        );
        assert_eq!(swap(all, 60999, 0), swap(all, 0, 60999));
        assert_eq!(swap(all, 0, 1), "0 1 1\n1 0 1\n2 2 4294967293\n");
        assert_eq!(
            swap("0 100000 65536\n", 60999, 60999),
            "0 0 60999\n60999 60999 1\n61000 61000 4536\n"
        );
    }
}
