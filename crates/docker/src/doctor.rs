//! What an engine is and has, for `brig doctor`.

use brig_sandbox::Finding;

use crate::engine::{Engine, Facts};
use crate::runtime::Runtime;

const GVISOR: &str = "for a kernel of its own around each container: apt-get install runsc, and \
    runsc install";

pub fn findings(engine: &Engine, facts: &Facts) -> Vec<Finding> {
    let finding = |what, good, detail: String, mend: Option<&str>| Finding {
        what,
        good,
        detail,
        mend: mend.filter(|_| !good).map(str::to_owned),
    };
    let names: Vec<&str> = facts
        .runtimes
        .iter()
        .map(|registered| registered.name.as_str())
        .collect();
    let chosen =
        Runtime::choose(facts, None).map_or_else(|_| "none".into(), |runtime| runtime.name);
    let strong = Runtime::choose(facts, Some("gvisor"))
        .or(Runtime::choose(facts, Some("kata")))
        .is_ok();
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
            format!("Docker {} at {}", facts.version, engine.address),
            None,
        ),
        finding("interface", true, facts.api.clone(), None),
        finding("kernel", true, facts.kernel.clone(), None),
        finding(
            "runtimes",
            true,
            format!("{}; without a choice: {chosen}", names.join(", ")),
            None,
        ),
        finding(
            "kernel isolation",
            strong,
            if strong { "gVisor or Kata" } else { "none" }.into(),
            Some(GVISOR),
        ),
        finding(
            "security options",
            facts.has("seccomp"),
            options.join(" "),
            Some("an engine with seccomp"),
        ),
        finding(
            "AppArmor",
            facts.has("apparmor"),
            if facts.has("apparmor") {
                "docker-default"
            } else {
                "absent"
            }
            .into(),
            Some("a kernel with AppArmor, and the package apparmor"),
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
