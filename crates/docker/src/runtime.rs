//! What runs the containers. The strongest that is there, unless one is asked for by name.

use brig_sandbox::{Error, Result};

use crate::engine::{Facts, Registered};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A virtual machine for each container.
    Kata,
    /// A kernel in user space.
    Gvisor,
    /// Namespaces and control groups of the engine's kernel.
    Plain,
}

/// The runtime of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// As the engine knows it.
    pub name: String,
    pub kind: Kind,
    /// Whether it was told to leave control groups alone.
    pub without_cgroups: bool,
}

impl Runtime {
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

    /// The one asked for, or the strongest there is.
    pub fn choose(facts: &Facts, asked: Option<&str>) -> Result<Self> {
        match asked {
            None | Some("auto") => Ok(Self::strongest(facts)),
            Some(name) => Self::named(facts, name),
        }
    }

    fn strongest(facts: &Facts) -> Self {
        let found = [Kind::Kata, Kind::Gvisor].into_iter().find_map(|wanted| {
            let mut all = facts.runtimes.iter();
            all.find(|registered| kind(registered) == wanted && !needs_kvm(registered))
        });
        let plain = |name: &str| {
            facts
                .runtimes
                .iter()
                .find(|registered| registered.name == name)
        };
        found
            .or_else(|| plain("runc"))
            .or_else(|| plain(&facts.default_runtime))
            .map_or_else(
                || Self {
                    name: "runc".into(),
                    kind: Kind::Plain,
                    without_cgroups: false,
                },
                Self::of,
            )
    }

    fn named(facts: &Facts, name: &str) -> Result<Self> {
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
                code: "engine.runtime",
                step: format!("look for the runtime `{name}`"),
                problem: "the engine does not know it".into(),
                hint: Some(format!(
                    "it knows {}; others are added to `runtimes` in /etc/docker/daemon.json",
                    names.join(", ")
                )),
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

/// gVisor on KVM hangs where virtual machines are nested, so it is never chosen unasked.
fn needs_kvm(registered: &Registered) -> bool {
    let args = registered.args.join(" ");
    kind(registered) == Kind::Gvisor
        && (args.contains("platform=kvm") || args.contains("platform kvm"))
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

    fn chosen(facts: &Facts, asked: Option<&str>) -> String {
        Runtime::choose(facts, asked).expect("a runtime").name
    }

    #[test]
    fn the_strongest_is_chosen_unasked() {
        let runc = ("runc", "runc", &[] as &[&str]);
        let runsc = ("runsc", "/usr/bin/runsc", &["--network=none"] as &[&str]);
        let kata = ("kata-runtime", "/opt/kata/bin/kata-runtime", &[] as &[&str]);
        for asked in [None, Some("auto")] {
            assert_eq!(chosen(&facts(&[runc]), asked), "runc");
            assert_eq!(chosen(&facts(&[runc, runsc]), asked), "runsc");
            assert_eq!(chosen(&facts(&[runc, runsc, kata]), asked), "kata-runtime");
        }
        assert_eq!(chosen(&facts(&[]), None), "runc");
    }

    #[test]
    fn kvm_is_only_used_when_asked_for() {
        let kvm = ("gv", "/usr/bin/runsc", &["--platform=kvm"] as &[&str]);
        let facts = facts(&[("runc", "runc", &[]), kvm]);
        assert_eq!(chosen(&facts, None), "runc");
        assert_eq!(chosen(&facts, Some("gv")), "gv");
    }

    #[test]
    fn what_is_asked_for_is_there_or_refused() {
        let facts = facts(&[
            ("runc", "runc", &[]),
            ("runsc", "runsc", &["--ignore-cgroups"]),
        ]);
        assert_eq!(chosen(&facts, Some("runc")), "runc");
        assert_eq!(chosen(&facts, Some("gvisor")), "runsc");
        assert!(
            Runtime::choose(&facts, Some("gvisor"))
                .expect("gVisor")
                .without_cgroups
        );
        for missing in ["kata", "crun", "nothing"] {
            let error = Runtime::choose(&facts, Some(missing)).expect_err(missing);
            assert_eq!(error.code(), "engine.runtime");
            assert!(
                error
                    .hint()
                    .is_some_and(|hint| hint.contains("runc, runsc"))
            );
        }
    }
}
