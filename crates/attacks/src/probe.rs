//! Probes, and what they say.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::host;

const PRELUDE: &str = include_str!("../probes/prelude.py");
const LAST: &str = "end of the probe";

/// A small Python program that attacks.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub name: &'static str,
    body: &'static str,
}

impl Probe {
    pub const fn new(name: &'static str, body: &'static str) -> Self {
        Self { name, body }
    }

    /// The whole program.
    pub fn source(&self) -> String {
        format!("{PRELUDE}\n\n{}\n\nreport(\"{LAST}\", True)\n", self.body)
    }
}

/// The probe of this name in `probes/`.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::probe::Probe::new($name, include_str!(concat!("../probes/", $name, ".py")))
    };
}

#[derive(Clone, Debug, Deserialize)]
pub struct Attempt {
    pub attempt: String,
    pub ok: bool,
    pub errno: Option<String>,
    #[serde(default)]
    pub value: Value,
}

/// Everything one run of a probe said.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    list: Vec<Attempt>,
    whole: bool,
    /// What it printed besides, for the message of a failed test.
    noise: String,
}

impl Attempts {
    pub fn parse(stdout: &[u8], stderr: &[u8]) -> Self {
        let mut attempts = Self {
            noise: String::from_utf8_lossy(stderr).into_owned(),
            ..Self::default()
        };
        for line in String::from_utf8_lossy(stdout).lines() {
            match serde_json::from_str::<Attempt>(line) {
                Ok(attempt) if attempt.attempt == LAST => attempts.whole = true,
                Ok(attempt) => attempts.list.push(attempt),
                Err(_) => {
                    let _ = writeln!(attempts.noise, "{line}");
                }
            }
        }
        attempts
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.list.iter()
    }

    pub fn find(&self, name: &str) -> Option<&Attempt> {
        self.list.iter().find(|attempt| attempt.attempt == name)
    }

    pub fn get(&self, name: &str) -> &Attempt {
        self.find(name)
            .unwrap_or_else(|| panic!("no attempt `{name}` in {self:#?}"))
    }

    pub fn ok(&self, name: &str) -> bool {
        self.get(name).ok
    }

    /// The probe came to its end: nothing of what it wanted to try is missing.
    #[must_use]
    pub fn whole(self) -> Self {
        assert!(
            self.whole && !self.list.is_empty(),
            "the probe did not finish: {self:#?}"
        );
        self
    }

    /// Leaves out what was checked apart.
    pub fn forget(&mut self, name: &str) {
        self.list.retain(|attempt| attempt.attempt != name);
    }

    /// Takes over attempts that worked in another run: some controls need the host's own root,
    /// others only work in namespaces of their own.
    #[must_use]
    pub fn or(mut self, other: &Attempts) -> Self {
        for attempt in &mut self.list {
            if let (false, Some(better)) = (attempt.ok, other.find(&attempt.attempt)) {
                *attempt = better.clone();
            }
        }
        self
    }

    /// Every attempt failed.
    pub fn assert_all_failed(&self) {
        let worked: Vec<&Attempt> = self.list.iter().filter(|attempt| attempt.ok).collect();
        assert!(worked.is_empty(), "these attacks worked: {worked:#?}");
    }

    /// Every attempt worked.
    pub fn assert_all_worked(&self) {
        let failed: Vec<&Attempt> = self.list.iter().filter(|attempt| !attempt.ok).collect();
        assert!(
            failed.is_empty(),
            "these should have worked: {failed:#?}\n{}",
            self.noise
        );
    }

    /// Every attempt failed here and worked in the control.
    pub fn assert_held(&self, control: &Attempts) {
        self.assert_held_except(control, |_| None);
    }

    /// The same where some controls cannot work on this machine: `excuse` gives the reason, and
    /// that is put on the list of what was skipped. The attack itself must still fail.
    pub fn assert_held_except(
        &self,
        control: &Attempts,
        excuse: impl Fn(&Attempt) -> Option<String>,
    ) {
        self.assert_all_failed();
        let names: BTreeMap<&str, &Attempt> = control
            .iter()
            .map(|attempt| (attempt.attempt.as_str(), attempt))
            .collect();
        let (mut worked, mut excused) = (0, BTreeMap::<String, Vec<&str>>::new());
        for attempt in &self.list {
            let name = attempt.attempt.as_str();
            match names.get(name) {
                Some(there) if there.ok => worked += 1,
                Some(there) => match excuse(there) {
                    Some(reason) => excused.entry(reason).or_default().push(name),
                    None => panic!(
                        "the control of `{name}` does not work: {there:?}\n{}",
                        control.noise
                    ),
                },
                None => panic!("the control did not try `{name}`: {control:#?}"),
            }
        }
        for (reason, names) in excused {
            host::skip(&format!("control of {}: {reason}", names.join(", ")));
        }
        assert!(
            worked > 0,
            "no control works at all, so nothing is shown: {control:#?}"
        );
    }
}

/// Excuses a control that the kernel refuses to everybody but the host's root, or does not have.
pub fn not_permitted_here(attempt: &Attempt) -> Option<String> {
    match attempt.errno.as_deref() {
        Some("ENOSYS" | "EAFNOSUPPORT" | "EPROTONOSUPPORT" | "ESOCKTNOSUPPORT") => {
            Some("this kernel does not have it".into())
        }
        Some("EPERM" | "EACCES") if !host::is_root() => {
            Some("only root could do it outside the sandbox".into())
        }
        _ => None,
    }
}
