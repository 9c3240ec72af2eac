//! Mounts that root makes for the guest: opened with root's rights, shown under the id that the
//! sandbox runs as.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::clone::{Gated, USER_NAMESPACE, spawn_gated};
use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::identity::{Identity, ranges};

const UNMAPPED: &str = "its file system can't show it under another owner, and only its owner may \
    write there; start Brig as the owner, let others write (chmod o+w), or mount it read-only";

/// Clones what the plan has checked, and nothing that has taken its place since.
pub fn open(mount: &CheckedMount, identity: &Identity) -> Result<OwnedFd> {
    let refuse = |error: io::Error| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem: error.to_string(),
    };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, &mount.source, flags, Mode::empty(), resolve)
        .map_err(|error| refuse(error.into()))?;
    let stat = rustix::fs::fstat(&found).map_err(|error| refuse(error.into()))?;
    if (stat.st_dev, stat.st_ino) != (mount.device, mount.inode) {
        return Err(refuse(io::Error::other("it is no longer what was checked")));
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(&found, "", clone).map_err(|error| refuse(error.into()))?;
    let map = mapping(stat.st_uid, stat.st_gid, identity).map_err(refuse)?;
    match brig_linux::mount::map_ids(&tree, &map) {
        // Not every file system can, and root of a container may not: then the files keep their
        // owners, and their permissions decide.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL | Errno::PERM)
            ) =>
        {
            let theirs = stat.st_uid == identity.uid || stat.st_mode & 0o002 != 0;
            if mount.writable && !theirs {
                return Err(refuse(io::Error::other(UNMAPPED)));
            }
        }
        mapped => mapped.map_err(refuse)?,
    }
    Ok(tree)
}

/// A user namespace that stands for "the owner of this folder is the sandbox's user". Everybody
/// else stays who they are, so that the owner can do with their files what it could outside.
fn mapping(uid: u32, gid: u32, identity: &Identity) -> io::Result<OwnedFd> {
    let null = std::fs::File::open("/dev/null")?;
    // It waits at its gate and ends when it is dropped: no program is ever run.
    let holder = spawn_gated(&Gated {
        namespaces: USER_NAMESPACE,
        program: null.as_fd(),
        argv: &[],
        descriptors: &[],
        null: null.as_fd(),
        cgroup: None,
        tasks: &[],
    })?;
    let folder = format!("/proc/{}", holder.pid());
    for (map, owner, stand_in) in [
        ("uid_map", uid, identity.uid),
        ("gid_map", gid, identity.gid),
    ] {
        let own = std::fs::read_to_string(format!("/proc/self/{map}"))?;
        std::fs::write(format!("{folder}/{map}"), swap(&own, owner, stand_in))?;
    }
    std::fs::File::open(format!("{folder}/ns/user")).map(OwnedFd::from)
}

/// A map of all ids that `own` has to themselves, but for two that change places.
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
