//! The launch summary on stderr: secrets that are hidden in mounts, directories that `--python`
//! mounts, and limits that are only observed.

use std::path::Path;
use std::sync::Once;

use brig_sandbox::plan::{CheckedMount, Hidden, HiddenKind, HiddenReason};
use brig_sandbox::{Control, Plan, SandboxBuilder, Strength};

use crate::{doctor, failure, log, units};

/// Prints the summary for every plan of a sandbox.
pub(crate) fn announced(builder: SandboxBuilder) -> SandboxBuilder {
    builder.on_plan(announce)
}

/// The same, and the limits that were asked for and are only observed. Where a sandbox is new: its
/// limits are those of its creation.
pub(crate) fn announced_with_limits(builder: SandboxBuilder) -> SandboxBuilder {
    // A session is planned twice: when it is created, and for its instance.
    let once = Once::new();
    builder.on_plan(move |plan| {
        announce(plan);
        once.call_once(|| {
            for text in observed(plan) {
                failure::note(&text);
            }
        });
    })
}

fn observed(plan: &Plan) -> Vec<String> {
    let limits = plan.limits();
    let memory = format!(
        "the limit of {} of memory",
        units::size(limits.memory_bytes.value)
    );
    let cpus = format!("the limit of {} CPUs", limits.cpus.value);
    let asked = [
        (Control::Memory, limits.memory_bytes.best_effort, memory),
        (Control::Cpu, limits.cpus.best_effort, cpus),
    ];
    let weak = |control: Control| {
        let mut states = plan.enforcement().iter();
        states.find(|state| state.control == control && state.strength != Strength::Enforced)
    };
    (asked.into_iter())
        .filter(|(control, best_effort, _)| *best_effort && !plan.waived().contains(control))
        .filter_map(|(control, _, limit)| {
            let (name, by) = (control.name(), &weak(control)?.by);
            Some(format!(
                "{limit} is only observed here, by {by} (`brig doctor` says how to enforce it; \
                 --require {name} refuses to run without)"
            ))
        })
        .collect()
}

fn announce(plan: &Plan) {
    details(plan);
    for note in plan.notes() {
        failure::note(note);
    }
    for mount in plan.shown() {
        if let Some(text) = hidden(mount) {
            failure::hidden(&text);
        }
    }
    let roots = plan.python().map(|python| python.roots.as_slice());
    for root in roots.unwrap_or_default() {
        failure::shown(&format!(
            "`{}`, read-only, for --python",
            root.source.display()
        ));
    }
}

/// The plan, for `--verbose`.
fn details(plan: &Plan) {
    log::debug(|| "planned".into());
    for mount in plan.shown() {
        log::debug(|| {
            let access = if mount.writable {
                "writable"
            } else {
                "read-only"
            };
            format!(
                "mount {} on {}, {access}",
                mount.source.display(),
                mount.target.display()
            )
        });
    }
    for control in plan.enforcement() {
        log::debug(|| {
            format!(
                "{}: {}, {}",
                control.control.name(),
                doctor::strength(control.strength),
                control.by
            )
        });
    }
}

/// How many characters of a path are printed. Code may have chosen a long one.
const LONGEST: usize = 100;

/// The beginning and the end of a long path.
pub(crate) fn shortened(path: &str) -> String {
    let length = path.chars().count();
    if length <= LONGEST {
        return path.to_owned();
    }
    let half = LONGEST / 2;
    let beginning: String = path.chars().take(half).collect();
    let end: String = path.chars().skip(length - half).collect();
    format!("{beginning}…{end}")
}

/// How many are listed by name.
const LISTED: usize = 10;

/// `None` if nothing is hidden. A link is listed with its target, which may be in another mount.
fn hidden(mount: &CheckedMount) -> Option<String> {
    let all = mount.hidden.iter();
    let all = all.filter(|hidden| hidden.kind != HiddenKind::Link);
    let names = all.clone().take(LISTED);
    let names: Vec<String> = names.map(|hidden| named(mount, hidden)).collect();
    if names.is_empty() {
        return None;
    }
    let more = match all.count().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{}{more} in `{}` (--show-secret PATH shows it)",
        names.join(", "),
        mount.source.display()
    ))
}

/// The hidden path, and why it is hidden unless its name shows it.
fn named(mount: &CheckedMount, hidden: &Hidden) -> String {
    let quoted = |path: &Path| format!("`{}`", shortened(&path.display().to_string()));
    let why = match &hidden.reason {
        HiddenReason::Name => return quoted(&hidden.path),
        HiddenReason::Link(link) => {
            let link = link.strip_prefix(&mount.source).unwrap_or(link);
            format!("{} leads there", quoted(link))
        }
        HiddenReason::Holds(1) => "it contains a secret".into(),
        HiddenReason::Holds(count) => format!("it contains {count} secrets"),
        HiddenReason::Closed => "it can't be searched".into(),
        HiddenReason::Depth => "it is too deep to be searched".into(),
        HiddenReason::Fifo => "a FIFO in a read-only mount".into(),
    };
    format!("{} ({why})", quoted(&hidden.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_shortened_in_its_middle() {
        assert_eq!(shortened("a/.npmrc"), "a/.npmrc");
        let long = format!("{}/.npmrc", "ä".repeat(3000));
        let short = shortened(&long);
        assert_eq!(short.chars().count(), LONGEST + 1);
        assert!(short.starts_with("ää") && short.ends_with("ä/.npmrc"));
    }

    #[test]
    fn the_reason_for_hiding_is_shown() {
        let hidden = |path: &str, kind, reason| Hidden {
            path: path.into(),
            kind,
            device: 1,
            inode: 1,
            reason,
        };
        let link = || HiddenReason::Link("/data/.ssh".into());
        let mut mount = CheckedMount {
            source: "/data".into(),
            target: "/mnt".into(),
            writable: true,
            device: 1,
            inode: 1,
            hidden: vec![
                hidden(".npmrc", HiddenKind::File, HiddenReason::Name),
                hidden(".ssh", HiddenKind::Link, link()),
                hidden("keys", HiddenKind::Directory, link()),
                hidden("many", HiddenKind::Directory, HiddenReason::Holds(5000)),
            ],
            pinned: Vec::new(),
        };
        assert_eq!(
            super::hidden(&mount).as_deref(),
            Some(
                "`.npmrc`, `keys` (`.ssh` leads there), `many` (it contains 5000 secrets) in `/data` \
             (--show-secret PATH shows it)"
            )
        );
        mount
            .hidden
            .retain(|hidden| hidden.kind == HiddenKind::Link);
        assert_eq!(mount.hidden.len(), 1);
        assert_eq!(super::hidden(&mount), None);
    }
}
