//! The container runtimes of an engine, and how strong they are.

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};

use crate::engine::{Facts, Registered};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A virtual machine for each container.
    Kata,
    /// A kernel in user space.
    Gvisor,
    /// Namespaces and control groups of the engine's kernel.
    Plain,
}

/// The runtime of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// Its name in the engine.
    pub name: String,
    pub kind: Kind,
    /// Whether it is configured to ignore control groups.
    pub without_cgroups: bool,
}

impl Runtime {
    /// Whether the guest counts memory and processes, because control groups count the runtime's own too, or
    /// nothing.
    pub(crate) fn counts_inside(&self) -> bool {
        self.kind == Kind::Gvisor
    }

    fn of(registered: &Registered) -> Self {
        Self {
            name: registered.name.clone(),
            kind: kind(registered),
            without_cgroups: registered.args.iter().any(|arg| {
                matches!(
                    arg.trim_start_matches('-'),
                    "ignore-cgroups" | "ignore-cgroups=true"
                )
            }),
        }
    }

    /// All that may be chosen without being named, strongest first. Never empty.
    pub(crate) fn ranked(facts: &Facts) -> Vec<Self> {
        let of_kind = |wanted| {
            let all = facts.runtimes.iter();
            all.filter(move |registered| kind(registered) == wanted && !needs_kvm(registered))
        };
        let mut ranked: Vec<Self> = of_kind(Kind::Kata)
            .chain(of_kind(Kind::Gvisor))
            .map(Self::of)
            .collect();
        // They are equally strong: runc is the one that engines are tested with.
        let usual = ["runc", facts.default_runtime.as_str()];
        let plain = usual
            .into_iter()
            .find_map(|name| of_kind(Kind::Plain).find(|registered| registered.name == name))
            .or_else(|| of_kind(Kind::Plain).next());
        match plain {
            Some(registered) => ranked.push(Self::of(registered)),
            None if ranked.is_empty() => ranked.push(Self {
                name: "runc".into(),
                kind: Kind::Plain,
                without_cgroups: false,
            }),
            None => {}
        }
        ranked
    }

    pub(crate) fn named(facts: &Facts, name: &str) -> Result<Self> {
        let exact = facts
            .runtimes
            .iter()
            .find(|registered| registered.name == name);
        let family = match name {
            "gvisor" => Some(Kind::Gvisor),
            "kata" => Some(Kind::Kata),
            _ => None,
        };
        let found = exact.or_else(|| {
            let family = family?;
            facts
                .runtimes
                .iter()
                .find(|registered| kind(registered) == family)
        });
        found.map(Self::of).ok_or_else(|| {
            let names: Vec<&str> = facts
                .runtimes
                .iter()
                .map(|registered| registered.name.as_str())
                .collect();
            Error::Engine {
                code: ReasonCode::EngineRuntime,
                step: format!("look for the runtime `{name}`"),
                problem: "the engine does not know it".into(),
                hint: Some(if facts.product.differences().chooses_runtime {
                    let names = names.join(", ");
                    format!("it knows {names}; add others to `runtimes` in /etc/docker/daemon.json")
                } else {
                    let names = names.join(", ");
                    format!("it always uses {names}, the `runtime` of its containers.conf")
                }),
            }
        })
    }
}

fn kind(registered: &Registered) -> Kind {
    let program = registered.path.rsplit('/').next().unwrap_or_default();
    let is = |part: &str| registered.name.contains(part) || program.contains(part);
    if is("kata") {
        Kind::Kata
    } else if is("runsc") || is("gvisor") {
        Kind::Gvisor
    } else {
        Kind::Plain
    }
}

/// gVisor on KVM hangs in nested virtual machines, so it is never chosen by default.
fn needs_kvm(registered: &Registered) -> bool {
    let args = registered.args.join(" ");
    kind(registered) == Kind::Gvisor
        && (args.contains("platform=kvm") || args.contains("platform kvm"))
}

/// Whether gVisor ended before it ran anything, which it does now and then on a machine that is very busy.
pub(crate) fn died_at_its_start(error: &Error) -> bool {
    error
        .to_string()
        .contains("waiting for sandbox to start: EOF")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(runtimes: &[(&str, &str, &[&str])]) -> Facts {
        let registered = |(name, path, args): &(&str, &str, &[&str])| Registered {
            name: (*name).into(),
            path: (*path).into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        Facts {
            runtimes: runtimes.iter().map(registered).collect(),
            default_runtime: "runc".into(),
            ..Facts::default()
        }
    }

    fn ranked(facts: &Facts) -> Vec<String> {
        let ranked = Runtime::ranked(facts).into_iter();
        ranked.map(|runtime| runtime.name).collect()
    }

    fn named(facts: &Facts, name: &str) -> String {
        Runtime::named(facts, name).expect("a runtime").name
    }

    #[test]
    fn the_strongest_comes_first() {
        let runc = ("runc", "runc", &[] as &[&str]);
        let crun = ("crun", "crun", &[] as &[&str]);
        let runsc = ("runsc", "/usr/bin/runsc", &["--network=none"] as &[&str]);
        let kata = ("kata-runtime", "/opt/kata/bin/kata-runtime", &[] as &[&str]);
        assert_eq!(ranked(&facts(&[crun, runc])), ["runc"]);
        assert_eq!(ranked(&facts(&[runc, runsc])), ["runsc", "runc"]);
        assert_eq!(
            ranked(&facts(&[crun, runsc, kata])),
            ["kata-runtime", "runsc", "crun"]
        );
        assert_eq!(ranked(&facts(&[])), ["runc"]);
        assert_eq!(ranked(&facts(&[kata])), ["kata-runtime"]);
    }

    #[test]
    fn kvm_is_only_used_when_asked_for() {
        let kvm = ("gv", "/usr/bin/runsc", &["--platform=kvm"] as &[&str]);
        let facts = facts(&[("runc", "runc", &[]), kvm]);
        assert_eq!(ranked(&facts), ["runc"]);
        assert_eq!(named(&facts, "gv"), "gv");
    }

    #[test]
    fn what_is_asked_for_is_there_or_refused() {
        let facts = facts(&[
            ("runc", "runc", &[]),
            ("runsc", "runsc", &["--ignore-cgroups"]),
        ]);
        assert_eq!(named(&facts, "runc"), "runc");
        assert_eq!(named(&facts, "gvisor"), "runsc");
        assert!(
            Runtime::named(&facts, "gvisor")
                .expect("gVisor")
                .without_cgroups
        );
        for missing in ["kata", "crun", "nothing"] {
            let error = Runtime::named(&facts, missing).expect_err(missing);
            assert_eq!(error.code(), "engine.runtime");
            assert!(
                error
                    .hint()
                    .is_some_and(|hint| hint.contains("runc, runsc"))
            );
        }
    }
}
