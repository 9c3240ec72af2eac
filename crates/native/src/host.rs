//! What this machine supports.

use std::path::Path;

use brig_sandbox::Finding;
use rustix::fs::{MemfdFlags, XattrFlags};
use rustix::process::geteuid;

use crate::cgroup::Cgroups;
use crate::identity::Identity;
use crate::nesting;

/// Detected once per process.
#[derive(Debug)]
pub(crate) struct Host {
    pub seccomp: bool,
    pub landlock: u32,
    pub cgroups: Cgroups,
    pub processors: usize,
    /// Whether overlays work on a tmpfs, which needs user xattrs there (Linux 6.6).
    pub overlay_layers: bool,
}

pub(crate) const SECCOMP_FIX: &str = "use a kernel with CONFIG_SECCOMP_FILTER";

impl Host {
    pub(crate) fn detect() -> Self {
        let processors = rustix::thread::sched_getaffinity(None)
            .map_or(1, |set| set.count() as usize)
            .max(1);
        Self {
            seccomp: brig_linux::seccomp::available(),
            landlock: brig_linux::landlock::abi(),
            cgroups: Cgroups::find(),
            processors,
            overlay_layers: tmpfs_keeps_marks(),
        }
    }

    /// `state`: where sessions are saved.
    pub(crate) fn findings(&self, state: Option<&Path>) -> Vec<Finding> {
        vec![
            kernel(),
            user_namespaces(),
            nesting::proc_finding(),
            self.seccomp_finding(),
            self.landlock_finding(),
            self.cgroup_finding(),
            caller(state),
        ]
    }

    fn seccomp_finding(&self) -> Finding {
        Finding {
            what: "seccomp",
            good: self.seccomp,
            detail: if self.seccomp { "present" } else { "absent" }.into(),
            fix: (!self.seccomp).then(|| SECCOMP_FIX.into()),
        }
    }

    fn landlock_finding(&self) -> Finding {
        Finding {
            what: "landlock",
            good: self.landlock > 0,
            detail: match self.landlock {
                0 => "absent".into(),
                abi => format!("ABI {abi}"),
            },
            fix: (self.landlock == 0).then(|| {
                "boot with `landlock` in the lsm= list, or use kernel 5.13 or newer".into()
            }),
        }
    }

    fn cgroup_finding(&self) -> Finding {
        Finding {
            what: "control groups",
            good: self.cgroups.memory(),
            detail: self.cgroups.describe(),
            fix: (!self.cgroups.memory()).then(|| crate::limits::CGROUP_FIX.into()),
        }
    }
}

/// Tested with a memory file, which is on a tmpfs of the kernel.
fn tmpfs_keeps_marks() -> bool {
    let file = rustix::fs::memfd_create(c"brig-probe", MemfdFlags::CLOEXEC);
    file.and_then(|file| rustix::fs::fsetxattr(file, c"user.brig", b"y", XattrFlags::empty()))
        .is_ok()
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let good = version >= (5, 13);
    Finding {
        what: "kernel",
        good,
        detail: release,
        fix: (!good).then(|| "use kernel 5.13 or newer".into()),
    }
}

fn user_namespaces() -> Finding {
    let limit = nesting::setting("user/max_user_namespaces").unwrap_or(0);
    let ordinary = !geteuid().is_root();
    let (detail, fix) = if limit == 0 {
        let fix = "sudo sysctl user.max_user_namespaces=15000";
        ("none allowed".to_owned(), Some(fix.to_owned()))
    } else if ordinary && nesting::setting("kernel/unprivileged_userns_clone") == Some(0) {
        let fix = "sudo sysctl kernel.unprivileged_userns_clone=1";
        ("not allowed for this user".into(), Some(fix.into()))
    } else if nesting::namespaces_are_restricted() {
        let detail = "without capabilities for this user, by AppArmor".into();
        (detail, Some(nesting::restriction_fix()))
    } else {
        (format!("{limit} allowed"), None)
    };
    Finding {
        what: "user namespaces",
        good: fix.is_none(),
        detail,
        fix,
    }
}

fn caller(state: Option<&Path>) -> Finding {
    let identity = Identity::of_caller();
    let (detail, fix) = match identity.saved {
        None => {
            let uid = identity.uid;
            (format!("user {uid}; sandboxes run as that user"), None)
        }
        Some((saved, _)) if !identity.is_own() => (
            format!("root; all sandboxes run as id {saved}, so they share its kernel quotas"),
            Some("give this container all user and group ids of the machine"),
        ),
        Some((saved, _)) if state.is_some_and(|state| !shows_owners(state)) => (
            format!(
                "root; each sandbox has its own id, but sessions with saved files run as id {saved} and \
                 share its kernel quotas"
            ),
            Some(
                "keep the state directory on a file system with idmapped mounts: ext4, xfs, \
                 btrfs, or tmpfs from Linux 6.3 on",
            ),
        ),
        Some(_) => ("root; each sandbox has its own id".to_owned(), None),
    };
    Finding {
        what: "caller",
        good: fix.is_none(),
        detail,
        fix: fix.map(Into::into),
    }
}

/// Whether saved files can be idmapped. A state directory that does not exist yet will be on the file system of
/// its parent.
fn shows_owners(state: &Path) -> bool {
    let mut found = state
        .ancestors()
        .filter_map(|path| path.canonicalize().ok());
    found
        .next()
        .is_some_and(|path| crate::detached::maps(&path).unwrap_or(false))
}
