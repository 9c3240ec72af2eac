//! What the surroundings of Brig, such as a container, forbid a sandbox, and how to allow it.

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Finding, Unavailable};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::backend::ID;

/// On these the kernel lets something be mounted without calling a procfs incomplete: they are always empty.
const EMPTY_IN_PROC: [&str; 2] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd"];

/// How many covered paths are named.
const NAMED: usize = 3;

const UNRESTRICT: &str = "give brig an AppArmor profile that allows user namespaces \
     (the package has one, see docs/guides/install.md), or: sudo sysctl \
     kernel.apparmor_restrict_unprivileged_userns=0";

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// A part of /proc is covered or read-only, so the kernel allows no new procfs in a user namespace.
    Proc,
    /// A seccomp filter around Brig.
    Seccomp,
    /// An AppArmor profile around Brig.
    AppArmor,
    /// AppArmor leaves processes in new user namespaces no capabilities (Ubuntu).
    RestrictedNamespaces,
}

/// What a container around Brig is run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Docker,
    Podman,
    Kubernetes,
}

impl Container {
    fn around_us() -> Option<Self> {
        let exists = |path: &str| std::path::Path::new(path).exists();
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Some(Self::Kubernetes)
        } else if exists("/run/.containerenv") {
            Some(Self::Podman)
        } else {
            exists("/.dockerenv").then_some(Self::Docker)
        }
    }

    fn allows(self, obstacle: Obstacle) -> &'static str {
        match (self, obstacle) {
            (Self::Docker, Obstacle::Proc) => "docker run --security-opt systempaths=unconfined",
            (Self::Docker, Obstacle::Seccomp) => {
                "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined"
            }
            (Self::Docker, _) => "docker run --security-opt apparmor=unconfined",
            (Self::Podman, Obstacle::Proc) => "podman run --security-opt unmask=ALL",
            (Self::Podman, Obstacle::Seccomp) => {
                "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"
            }
            (Self::Podman, _) => "podman run --security-opt apparmor=unconfined",
            (Self::Kubernetes, Obstacle::Proc) => {
                "Kubernetes: securityContext.procMount: Unmasked, with hostUsers: false in the pod"
            }
            (Self::Kubernetes, Obstacle::Seccomp) => {
                "Kubernetes: securityContext.seccompProfile.type: Unconfined and procMount: \
                 Unmasked, with hostUsers: false in the pod"
            }
            (Self::Kubernetes, _) => "Kubernetes: securityContext.appArmorProfile.type: Unconfined",
        }
    }
}

impl Obstacle {
    /// What the failed step of a setup shows.
    fn behind(step: &str, errno: Errno) -> Option<Self> {
        let refused = matches!(errno, Errno::PERM | Errno::ACCESS);
        let in_proc = step == "mount procfs" || step.starts_with("set max_");
        if in_proc && (refused || errno == Errno::ROFS) {
            return Some(Self::Proc);
        }
        // Podman's profile allows namespaces, but not this. Nothing else refuses it in a namespace of its own.
        if refused && step == "set the host name" {
            return Some(Self::Seccomp);
        }
        // The first step that needs a capability: later ones may be refused for other reasons, such as the
        // permissions of a mounted directory.
        if !refused || step != "make mounts private" {
            return None;
        }
        if namespaces_are_restricted() {
            return Some(Self::RestrictedNamespaces);
        }
        confined().then_some(Self::AppArmor)
    }

    fn reason(self) -> String {
        match self {
            Self::Proc => match named(&covers()) {
                None => "/proc is not complete here, so a sandbox can't have its own".into(),
                Some(names) => {
                    format!("parts of /proc are covered ({names}), so a sandbox can't have its own")
                }
            },
            Self::Seccomp => "a seccomp filter around Brig does not allow namespaces".into(),
            Self::AppArmor => {
                format!(
                    "the AppArmor profile `{}` around Brig does not allow mounts",
                    label()
                )
            }
            Self::RestrictedNamespaces => "AppArmor does not let this user use user namespaces \
                 (kernel.apparmor_restrict_unprivileged_userns is 1)"
                .into(),
        }
    }

    fn fix(self) -> String {
        if self == Self::RestrictedNamespaces {
            return UNRESTRICT.into();
        }
        let all = [Container::Docker, Container::Podman, Container::Kubernetes];
        let ways: Vec<&str> = match Container::around_us() {
            // Its profile would be the next obstacle.
            Some(Container::Podman) if self == Self::Proc && is_filtered() => {
                vec![Container::Podman.allows(Self::Seccomp)]
            }
            Some(container) => vec![container.allows(self)],
            None => all.map(|container| container.allows(self)).to_vec(),
        };
        format!(
            "allow it in the container around Brig: {}",
            ways.join("; or ")
        )
    }

    fn unavailable(self) -> Unavailable {
        Unavailable {
            code: ReasonCode::BackendNested,
            reason: self.reason(),
            fix: Some(self.fix()),
        }
    }
}

/// Why no namespaces could be made.
pub(crate) fn no_namespaces(error: &std::io::Error) -> Unavailable {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // Every kernel that Brig supports has `clone3`. Filters answer so, to make programs use `clone`.
        Some(Errno::NOSYS) => Obstacle::Seccomp.unavailable(),
        Some(Errno::PERM | Errno::ACCESS) if namespaces_are_restricted() => {
            Obstacle::RestrictedNamespaces.unavailable()
        }
        Some(Errno::PERM | Errno::ACCESS) if Container::around_us().is_some() => {
            Obstacle::Seccomp.unavailable()
        }
        Some(Errno::PERM | Errno::ACCESS) => Unavailable {
            fix: Some("sudo sysctl kernel.unprivileged_userns_clone=1".into()),
            ..Unavailable::new(
                "this system does not let you create user namespaces (check \
                 kernel.unprivileged_userns_clone)",
            )
        },
        Some(Errno::NOSPC | Errno::USERS) => Unavailable {
            fix: Some("sudo sysctl user.max_user_namespaces=15000".into()),
            ..Unavailable::new("no more namespaces are allowed (check user.max_user_namespaces)")
        },
        _ => Unavailable::new(error.to_string()),
    }
}

/// Says what stands in the way, if a step of the setup failed because of it.
pub(crate) fn explain(error: Error) -> Error {
    let Error::Setup { step, problem } = &error else {
        return error;
    };
    let kinds = [Errno::PERM, Errno::ACCESS, Errno::ROFS];
    let is = |errno: &Errno| problem.contains(&format!("(os error {})", errno.raw_os_error()));
    let errno = kinds.into_iter().find(is);
    match errno.and_then(|errno| Obstacle::behind(step, errno)) {
        Some(obstacle) => Error::Unavailable {
            backend: ID.clone(),
            cause: obstacle.unavailable(),
        },
        None => error,
    }
}

/// Whether /proc can be had in a sandbox, for `brig doctor`.
pub(crate) fn proc_finding() -> Finding {
    let covers = named(&covers());
    Finding {
        what: "/proc",
        good: covers.is_none(),
        fix: covers.is_some().then(|| Obstacle::Proc.fix()),
        detail: match covers {
            None => "complete".into(),
            Some(names) => format!("covered: {names}"),
        },
    }
}

/// Whether user namespaces are useless to this user because of AppArmor.
pub(crate) fn namespaces_are_restricted() -> bool {
    !geteuid().is_root()
        && setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1)
        && label() == "unconfined"
}

pub(crate) fn restriction_fix() -> String {
    UNRESTRICT.into()
}

/// A setting of the kernel that is a number.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Whether there is a seccomp filter around Brig.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line == "Seccomp:\t2")
}

/// The AppArmor profile of this process.
fn label() -> String {
    let text = std::fs::read_to_string("/proc/self/attr/apparmor/current").unwrap_or_default();
    text.trim().to_owned()
}

/// A profile may be there only to allow user namespaces: `brig (unconfined)`.
fn confined() -> bool {
    let label = label();
    !label.is_empty() && label != "unconfined" && !label.ends_with("(unconfined)")
}

/// Paths below /proc that something is mounted on.
fn covers() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    covers_in(&mounts)
}

fn covers_in(mounts: &str) -> Vec<String> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mut covered: Vec<String> = points
        .filter(|point| point.starts_with("/proc/") && !EMPTY_IN_PROC.contains(point))
        .map(str::to_owned)
        .collect();
    covered.dedup();
    covered
}

/// Some of them by name; `None` if there are none.
fn named(covers: &[String]) -> Option<String> {
    let names: Vec<&str> = covers.iter().take(NAMED).map(String::as_str).collect();
    match covers.len() {
        0 => None,
        1..=NAMED => Some(names.join(", ")),
        more => Some(format!("{} and {} more", names.join(", "), more - NAMED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_proc_is_found_and_named() {
        let mounts = "\
22 1 0:21 / /proc rw - proc proc rw
23 22 0:22 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
30 1 0:30 / /process rw - tmpfs tmpfs rw
";
        assert_eq!(covers_in(mounts), [""; 0]);
        let masked = format!(
            "{mounts}31 22 0:31 / /proc/kcore rw - tmpfs tmpfs rw\n\
             32 22 0:21 /sys /proc/sys ro - proc proc rw\n"
        );
        let found = covers_in(&masked);
        assert_eq!(found, ["/proc/kcore", "/proc/sys"]);
        assert_eq!(named(&found).as_deref(), Some("/proc/kcore, /proc/sys"));
        let many: Vec<String> = (0..5).map(|n| format!("/proc/{n}")).collect();
        let text = "/proc/0, /proc/1, /proc/2 and 2 more";
        assert_eq!(named(&many).as_deref(), Some(text));
    }

    #[test]
    fn a_covered_proc_is_told_from_other_failures() {
        let failed = |step: &str, errno: Errno| {
            explain(Error::Setup {
                step: step.into(),
                problem: std::io::Error::from(errno).to_string(),
            })
        };
        for (step, errno) in [
            ("mount procfs", Errno::PERM),
            ("set max_user_namespaces", Errno::ROFS),
        ] {
            let error = failed(step, errno);
            assert_eq!(error.code(), "backend.nested", "{error}");
            assert!(error.to_string().contains("/proc"), "{error}");
            assert!(error.hint().is_some());
        }
        let filtered = failed("set the host name", Errno::PERM);
        assert_eq!(filtered.code(), "backend.nested", "{filtered}");
        assert!(filtered.to_string().contains("seccomp"), "{filtered}");
        assert_eq!(failed("mount procfs", Errno::NOMEM).code(), "backend.setup");
        assert_eq!(failed("mount /usr", Errno::NOENT).code(), "backend.setup");
    }

    #[test]
    fn a_filtered_call_is_told_from_a_full_machine() {
        let told = |errno: Errno| no_namespaces(&std::io::Error::from(errno));
        assert_eq!(told(Errno::NOSYS).code, ReasonCode::BackendNested);
        let full = told(Errno::NOSPC);
        assert_eq!(full.code, ReasonCode::BackendUnavailable);
        assert!(full.fix.expect("a fix").contains("max_user_namespaces"));
    }
}
