//! What an engine is and has, for `brig doctor`.

use brig_sandbox::Finding;

use crate::engine::{Engine, Facts};
use crate::runtime::{Kind, Runtime};

const GVISOR: &str = "for a separate kernel per container: apt-get install runsc, then runsc \
                      install";

/// `chosen`: the usual runtime. `broken`: those that do not work, and why.
pub(crate) fn findings(
    engine: &Engine,
    facts: &Facts,
    chosen: &str,
    broken: &[(String, String)],
) -> Vec<Finding> {
    let finding = |what, good, detail: String, fix: Option<&str>| Finding {
        what,
        good,
        detail,
        fix: fix.filter(|_| !good).map(str::to_owned),
    };
    let names: Vec<&str> = facts
        .runtimes
        .iter()
        .map(|registered| registered.name.as_str())
        .collect();
    let is_broken = |name: &str| broken.iter().any(|(broken, _)| broken == name);
    let strong: Vec<String> = Runtime::ranked(facts)
        .into_iter()
        .filter(|runtime| runtime.kind != Kind::Plain && !is_broken(&runtime.name))
        .map(|runtime| runtime.name)
        .collect();
    let broken: Vec<String> = (broken.iter())
        .map(|(name, why)| format!("{name} does not work: {why}"))
        .collect();
    let options: Vec<&str> = facts
        .security
        .iter()
        .map(|option| option.strip_prefix("name=").unwrap_or(option))
        .collect();
    let counted = [
        (facts.memory, "memory"),
        (facts.swap, "swap"),
        (facts.cpu, "cpu"),
        (facts.pids, "pids"),
    ];
    let missing: Vec<&str> = counted
        .iter()
        .filter(|(there, _)| !there)
        .map(|(_, name)| *name)
        .collect();
    vec![
        finding(
            "engine",
            true,
            format!(
                "{} {} at {}",
                facts.product.differences().name,
                facts.version,
                engine.address
            ),
            None,
        ),
        finding("interface", true, facts.api.clone(), None),
        finding("kernel", true, facts.kernel.clone(), None),
        finding(
            "runtimes",
            broken.is_empty(),
            [
                &[format!("{}; default: {chosen}", names.join(", "))],
                &broken[..],
            ]
            .concat()
            .join("; "),
            Some("repair the runtime, or remove it from `runtimes` in /etc/docker/daemon.json"),
        ),
        finding(
            "kernel isolation",
            !strong.is_empty(),
            if strong.is_empty() {
                "none".into()
            } else {
                strong.join(", ")
            },
            Some(GVISOR),
        ),
        finding(
            "security options",
            facts.has("seccomp"),
            options.join(" "),
            Some("use an engine with seccomp"),
        ),
        finding(
            "AppArmor",
            facts.has("apparmor"),
            if facts.has("apparmor") {
                facts
                    .product
                    .differences()
                    .apparmor
                    .unwrap_or("the engine's own profile")
            } else {
                "absent"
            }
            .into(),
            Some("use a kernel with AppArmor, and install the package apparmor"),
        ),
        finding(
            "control groups",
            missing.is_empty(),
            if missing.is_empty() {
                format!("version {}", facts.cgroup)
            } else {
                format!("version {}, without {}", facts.cgroup, missing.join(", "))
            },
            Some(
                "boot the engine's machine with those controllers (cgroup_enable=memory swapaccount=1)",
            ),
        ),
    ]
}
