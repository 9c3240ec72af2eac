//! What this machine offers.

use brig_sandbox::Finding;
use rustix::fs::{MemfdFlags, XattrFlags};
use rustix::process::geteuid;

use crate::cgroup::Cgroups;

/// Looked at once per process: none of it changes while a program runs.
#[derive(Debug)]
pub struct Host {
    pub seccomp: bool,
    pub landlock: u32,
    pub cgroups: Cgroups,
    pub processors: usize,
    /// Whether overlays work on a tmpfs, which must keep their marks for that (Linux 6.6).
    pub overlay_layers: bool,
}

pub const SECCOMP_MEND: &str = "a kernel with CONFIG_SECCOMP_FILTER";

impl Host {
    pub fn look() -> Self {
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

    pub fn findings(&self) -> Vec<Finding> {
        vec![
            kernel(),
            user_namespaces(),
            self.seccomp_finding(),
            self.landlock_finding(),
            self.cgroup_finding(),
            caller(),
        ]
    }

    fn seccomp_finding(&self) -> Finding {
        Finding {
            what: "seccomp",
            good: self.seccomp,
            detail: if self.seccomp { "present" } else { "absent" }.into(),
            mend: (!self.seccomp).then(|| SECCOMP_MEND.into()),
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
            mend: (self.landlock == 0)
                .then(|| "boot with `landlock` in the lsm= list, or a kernel from 5.13 on".into()),
        }
    }

    fn cgroup_finding(&self) -> Finding {
        Finding {
            what: "control groups",
            good: self.cgroups.memory(),
            detail: self.cgroups.describe(),
            mend: (!self.cgroups.memory()).then(|| crate::limits::CGROUP_MEND.into()),
        }
    }
}

/// A memory file lies on a tmpfs of the kernel's own.
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
        mend: (!good).then(|| "a kernel from 5.13 on".into()),
    }
}

fn user_namespaces() -> Finding {
    let limit = std::fs::read_to_string("/proc/sys/user/max_user_namespaces")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(0);
    let restricted = ["kernel/apparmor_restrict_unprivileged_userns"]
        .iter()
        .any(|name| {
            std::fs::read_to_string(format!("/proc/sys/{name}"))
                .is_ok_and(|text| text.trim() == "1")
        })
        || std::fs::read_to_string("/proc/sys/kernel/unprivileged_userns_clone")
            .is_ok_and(|text| text.trim() == "0");
    let good = limit > 0 && (geteuid().is_root() || !restricted);
    Finding {
        what: "user namespaces",
        good,
        detail: if good {
            format!("{limit} allowed")
        } else {
            "not allowed to you".into()
        },
        mend: (!good).then(|| {
            "sudo sysctl user.max_user_namespaces=15000 \
             kernel.apparmor_restrict_unprivileged_userns=0"
                .into()
        }),
    }
}

fn caller() -> Finding {
    Finding {
        what: "caller",
        good: true,
        detail: match geteuid() {
            uid if uid.is_root() => "root; sandboxes run as an unprivileged id".into(),
            uid => format!("user {}; sandboxes run as that user", uid.as_raw()),
        },
        mend: None,
    }
}
