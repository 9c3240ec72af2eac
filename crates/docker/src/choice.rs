//! Which runtime `auto` means: the strongest one that works and enforces what is needed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brig_sandbox::{Controls, SessionConfig};

use crate::runtime::Runtime;

/// Runtimes that did not work, by name, and why.
#[derive(Debug, Default)]
pub(crate) struct BrokenRuntimes(Mutex<BTreeMap<String, String>>);

impl BrokenRuntimes {
    pub(crate) fn insert(&self, runtime: &Runtime, why: String) {
        self.names().insert(runtime.name.clone(), why);
    }

    fn why(&self, runtime: &Runtime) -> Option<String> {
        self.names().get(&runtime.name).cloned()
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A runtime that was chosen, and why, if there was a choice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub runtime: Runtime,
    pub note: Option<String>,
}

/// Chooses from `ranked`, the strongest first. If none enforces what the config needs, the last one that works
/// is chosen, and refused when the plan is made. `None` only if `ranked` is empty.
pub(crate) fn choose(
    ranked: Vec<Runtime>,
    broken: &BrokenRuntimes,
    config: &SessionConfig,
    controls: impl Fn(&Runtime) -> Controls,
) -> Option<Choice> {
    let several = ranked.len() > 1;
    let mut passed = Vec::new();
    let mut last = None;
    for runtime in ranked {
        if let Some(why) = broken.why(&runtime) {
            passed.push(format!("`{}` does not work: {why}", runtime.name));
            last.get_or_insert(runtime);
            continue;
        }
        let unmet = controls(&runtime).unmet(config);
        let unmet: Vec<&str> = unmet.iter().map(|unmet| unmet.control.name()).collect();
        if unmet.is_empty() {
            let why = if passed.is_empty() {
                "the strongest that the engine has".into()
            } else {
                passed.join("; ")
            };
            let note = several.then(|| format!("runtime `{}` (auto): {why}", runtime.name));
            return Some(Choice { runtime, note });
        }
        passed.push(format!(
            "`{}` can't enforce {}",
            runtime.name,
            unmet.join(", ")
        ));
        last = Some(runtime);
    }
    let note = several.then(|| format!("no runtime (auto): {}", passed.join("; ")));
    last.map(|runtime| Choice { runtime, note })
}

#[cfg(test)]
mod tests {
    use brig_sandbox::Control;

    use super::*;
    use crate::engine::Facts;
    use crate::limits;
    use crate::runtime::Kind;

    fn runtime(name: &str, kind: Kind, without_cgroups: bool) -> Runtime {
        Runtime {
            name: name.into(),
            kind,
            without_cgroups,
        }
    }

    fn chosen(ranked: &[Runtime], broken: &[&str], config: &SessionConfig) -> (String, String) {
        let facts = Facts {
            memory: true,
            cpu: true,
            pids: true,
            security: vec!["name=seccomp".into()],
            ..Facts::default()
        };
        let known = BrokenRuntimes::default();
        for name in broken {
            known.insert(&runtime(name, Kind::Gvisor, false), "it is missing".into());
        }
        let controls = |runtime: &Runtime| limits::controls(&facts, runtime, Err("x"), config);
        let choice = choose(ranked.to_vec(), &known, config, controls).expect("a choice");
        (choice.runtime.name, choice.note.unwrap_or_default())
    }

    #[test]
    fn the_strongest_that_enforces_the_plan_and_works_is_chosen() {
        let runc = runtime("runc", Kind::Plain, false);
        let bare = runtime("bare", Kind::Gvisor, true);
        let full = runtime("full", Kind::Gvisor, false);
        let config = SessionConfig::default();
        let all = [full.clone(), bare.clone(), runc.clone()];
        let name = |ranked: &[Runtime], broken: &[&str]| chosen(ranked, broken, &config);
        assert_eq!(
            name(std::slice::from_ref(&runc), &[]),
            ("runc".into(), String::new())
        );
        let (first, note) = name(&all, &[]);
        assert_eq!(first, "full");
        assert_eq!(
            note,
            "runtime `full` (auto): the strongest that the engine has"
        );
        // It has no CPU limit, which every config has.
        let (next, note) = name(&all, &["full"]);
        assert_eq!(next, "runc");
        assert_eq!(
            note,
            "runtime `runc` (auto): `full` does not work: it is missing; `bare` can't enforce cpu"
        );
        let mut waived = SessionConfig::default();
        waived.waive.insert(Control::Cpu);
        assert_eq!(chosen(&all, &["full"], &waived).0, "bare");
        // Refused later, with the reason.
        let (none, note) = name(std::slice::from_ref(&bare), &[]);
        assert_eq!((none.as_str(), note.as_str()), ("bare", ""));
        assert_eq!(name(&[bare, full], &["bare", "full"]).0, "bare");
    }
}
