//! The user ids of a sandbox, inside and outside.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{getegid, geteuid};
use rustix::rand::{GetRandomFlags, getrandom};

/// The user inside every sandbox: nobody.
pub(crate) const INSIDE: u32 = 65534;

/// The id on disk of files that sandboxes of root have saved. In a range that no system assigns.
const SAVED: u32 = 60999;

/// Ids that one sandbox has at a time: the kernel counts many resources per user, and sandboxes must not share
/// these counters. No system assigns this range.
const FIRST_OWN: u32 = 0x7000_0000;
const LAST_OWN: u32 = 0x7ffd_ffff;
/// How many ids are tried. The range is large, so the first one is almost always free.
const TRIES: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// What [`INSIDE`] is mapped to.
    pub uid: u32,
    pub gid: u32,
    /// Only for root, which may map any id and give up its groups: the uid and gid that saved files
    /// get.
    pub saved: Option<(u32, u32)>,
    /// Reserves this id.
    claim: Option<Arc<OwnedFd>>,
}

impl Identity {
    /// For root, an id that no other sandbox has, if there are enough ids.
    pub(crate) fn of_caller() -> Self {
        let shared = Self::shared();
        match shared.saved.and_then(|_| claim()) {
            Some((id, claim)) => Self {
                uid: id,
                gid: id,
                claim: Some(claim),
                ..shared
            },
            None => shared,
        }
    }

    /// For root the id that saved files belong to.
    pub(crate) fn shared() -> Self {
        let (uid, gid) = (geteuid(), getegid());
        let saved = uid.is_root().then(|| {
            let uid = saved_id("/proc/self/uid_map")?;
            Some((uid, saved_id("/proc/self/gid_map")?))
        });
        // Without it: an ordinary user, or a root that has no other id in its namespace.
        let saved = saved.flatten();
        let (uid, gid) = saved.unwrap_or((uid.as_raw(), gid.as_raw()));
        Self {
            uid,
            gid,
            saved,
            claim: None,
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.saved.is_some()
    }

    /// Whether no other sandbox has this id.
    pub(crate) fn is_own(&self) -> bool {
        self.claim.is_some()
    }
}

/// Reserves an id by binding an abstract Unix socket name, which the kernel gives to one process at a time and
/// frees when that process dies.
fn claim() -> Option<(u32, Arc<OwnedFd>)> {
    for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
        let ranges = ranges(&std::fs::read_to_string(map).ok()?);
        let (first, last) = (u64::from(FIRST_OWN), u64::from(LAST_OWN));
        let mut ranges = ranges.iter();
        if !ranges.any(|(from, end)| *from <= first && last < *end) {
            return None;
        }
    }
    for _ in 0..TRIES {
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty()).ok()?;
        let id = FIRST_OWN + u32::from_ne_bytes(random) % (LAST_OWN - FIRST_OWN + 1);
        let name = SocketAddrUnix::new_abstract_name(format!("brig/id/{id}").as_bytes()).ok()?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        if rustix::net::bind(&socket, &name).is_ok() {
            return Some((id, Arc::new(socket)));
        }
    }
    None
}

/// The usual id of saved files, or in a container with a small map the highest there is. None if only
/// root itself is mapped.
fn saved_id(map: &str) -> Option<u32> {
    let ranges = ranges(&std::fs::read_to_string(map).ok()?);
    let usual = u64::from(SAVED);
    let id = if ranges
        .iter()
        .any(|(first, end)| (*first..*end).contains(&usual))
    {
        usual
    } else {
        ranges.iter().map(|(_, end)| end - 1).max()?
    };
    u32::try_from(id).ok().filter(|id| *id != 0)
}

/// The ranges of ids inside a map, as first and end.
pub(crate) fn ranges(map: &str) -> Vec<(u64, u64)> {
    map.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let first = numbers.next()?.ok()?;
            Some((first, first + numbers.nth(1)?.ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_hold_the_same_id() {
        if !geteuid().is_root() {
            brig_testing::skip("identity", "only root gives sandboxes ids of their own");
            return;
        }
        let held: Vec<Identity> = (0..64).map(|_| Identity::of_caller()).collect();
        if !held[0].is_own() {
            brig_testing::skip("identity", "this root has no ids to give");
            return;
        }
        let mut ids: Vec<u32> = held.iter().map(|identity| identity.uid).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), held.len());
        assert!(ids.iter().all(|id| (FIRST_OWN..=LAST_OWN).contains(id)));
        // While one is held, nobody else can have it.
        let name = format!("brig/id/{}", ids[0]);
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let other = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        assert!(rustix::net::bind(&other, &name).is_err());
        drop(held);
        assert!(rustix::net::bind(&other, &name).is_ok());
    }

    #[test]
    fn saved_files_never_belong_to_the_id_of_one_sandbox() {
        let own = Identity::of_caller();
        match own.saved {
            Some((uid, gid)) => {
                assert!(!(FIRST_OWN..=LAST_OWN).contains(&uid));
                assert!(!(FIRST_OWN..=LAST_OWN).contains(&gid));
                let shared = Identity::shared();
                assert_eq!((shared.uid, shared.gid), (uid, gid));
            }
            None => assert_eq!(own.uid, geteuid().as_raw()),
        }
    }
}
