//! Who the sandbox runs as, inside and outside.

use rustix::process::{getegid, geteuid};

/// The user inside every sandbox: nobody.
pub const INSIDE: u32 = 65534;

/// Stands in for root outside: an id in a range that no system assigns to anyone.
const STAND_IN: u32 = 60999;

#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// What [`INSIDE`] is mapped to.
    pub uid: u32,
    pub gid: u32,
    /// Root may map any id, and give up its groups.
    pub root: bool,
}

impl Identity {
    pub fn of_caller() -> Self {
        let (uid, gid) = (geteuid(), getegid());
        if uid.is_root()
            && let Some(uid) = stand_in("/proc/self/uid_map")
            && let Some(gid) = stand_in("/proc/self/gid_map")
        {
            Self {
                uid,
                gid,
                root: true,
            }
        } else {
            // An ordinary user, or a root that is nobody in particular outside its own namespace.
            Self {
                uid: uid.as_raw(),
                gid: gid.as_raw(),
                root: false,
            }
        }
    }
}

/// An id to use in root's place: the usual one, or in a container with a small map the highest
/// there is. None if only root itself is mapped.
fn stand_in(map: &str) -> Option<u32> {
    let ranges = ranges(&std::fs::read_to_string(map).ok()?);
    let usual = u64::from(STAND_IN);
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

/// The ids that a map has inside: the first of each range, and the one after its last.
pub fn ranges(map: &str) -> Vec<(u64, u64)> {
    map.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let first = numbers.next()?.ok()?;
            Some((first, first + numbers.nth(1)?.ok()?))
        })
        .collect()
}
