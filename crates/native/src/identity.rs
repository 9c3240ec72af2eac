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
        if uid.is_root() {
            Self {
                uid: STAND_IN,
                gid: STAND_IN,
                root: true,
            }
        } else {
            Self {
                uid: uid.as_raw(),
                gid: gid.as_raw(),
                root: false,
            }
        }
    }
}
