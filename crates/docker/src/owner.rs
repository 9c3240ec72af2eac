//! Who owns a container, as labels on it, and whether that owner is still there.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::address::hex;

/// On everything that Brig makes in an engine; its value names the process.
pub const LABEL: &str = "brig.owner";
const MACHINE: &str = "brig.machine";
const BOOT: &str = "brig.boot";
const NAMESPACE: &str = "brig.pids";

/// A process of some machine, in some boot of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Nothing where machines have no id.
    machine: String,
    boot: String,
    /// The process namespace that the number counts in.
    namespace: String,
    pid: u32,
    /// In clock ticks after the boot: numbers are given out again.
    started: u64,
}

/// What is known of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Alive,
    Dead,
    /// Not of this boot of this machine: dead, if machines are what they say.
    EarlierBoot,
    Unknown,
}

impl Owner {
    pub fn of_process() -> Self {
        static OWN: OnceLock<Owner> = OnceLock::new();
        let look = || {
            let pid = std::process::id();
            Self {
                machine: machine(),
                boot: read("/proc/sys/kernel/random/boot_id"),
                namespace: namespace(),
                pid,
                started: started(pid).unwrap_or_default(),
            }
        };
        OWN.get_or_init(look).clone()
    }

    pub fn labels(&self) -> HashMap<String, String> {
        [
            (LABEL, format!("{}.{}", self.pid, self.started)),
            (MACHINE, self.machine.clone()),
            (BOOT, self.boot.clone()),
            (NAMESPACE, self.namespace.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub fn from_labels(labels: &HashMap<String, String>) -> Option<Self> {
        let (pid, started) = labels.get(LABEL)?.split_once('.')?;
        let text = |name: &str| labels.get(name).cloned();
        Some(Self {
            machine: text(MACHINE)?,
            boot: text(BOOT)?,
            namespace: text(NAMESPACE)?,
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// As seen from this process.
    pub fn fate(&self, own: &Owner) -> Fate {
        if self == own {
            return Fate::Alive;
        }
        if self.boot.is_empty() || self.machine != own.machine {
            return Fate::Unknown;
        }
        if self.boot != own.boot {
            return if own.machine.is_empty() {
                Fate::Unknown
            } else {
                Fate::EarlierBoot
            };
        }
        if self.namespace.is_empty() || self.namespace != own.namespace {
            return Fate::Unknown;
        }
        match started(self.pid) {
            Some(started) if started == self.started => Fate::Alive,
            // Without the right to look nothing is certain.
            None if fs::metadata(format!("/proc/{}", self.pid)).is_ok() => Fate::Unknown,
            _ => Fate::Dead,
        }
    }
}

/// The id is not to be told to others, so its digest is.
fn machine() -> String {
    let id = read("/etc/machine-id");
    if id.is_empty() {
        return String::new();
    }
    hex(&Sha256::digest(format!("brig\n{id}")))[..32].to_owned()
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Field 22 of `stat`, counted after the name, which may hold anything.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_carry_the_whole_owner() {
        let own = Owner::of_process();
        assert!(own.started > 0);
        assert_eq!(Owner::from_labels(&own.labels()), Some(own.clone()));
        let mut torn = own.labels();
        torn.remove(BOOT);
        assert_eq!(Owner::from_labels(&torn), None);
        for odd in ["", "1", "x.1", "1.x"] {
            let mut labels = own.labels();
            labels.insert(LABEL.into(), odd.into());
            assert_eq!(Owner::from_labels(&labels), None, "{odd}");
        }
    }

    #[test]
    fn only_who_is_provably_dead_is_dead() {
        let own = Owner {
            machine: "m".into(),
            ..Owner::of_process()
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("child");
        let alive = Owner {
            pid: child.id(),
            started: started(child.id()).expect("started"),
            ..own.clone()
        };
        assert_eq!(own.fate(&own), Fate::Alive);
        assert_eq!(alive.fate(&own), Fate::Alive);
        let recycled = Owner {
            started: alive.started + 1,
            ..alive.clone()
        };
        assert_eq!(recycled.fate(&own), Fate::Dead);
        let elsewhere = Owner {
            machine: "other".into(),
            ..recycled.clone()
        };
        assert_eq!(elsewhere.fate(&own), Fate::Unknown);
        let inside = Owner {
            namespace: "pid:[1]".into(),
            ..recycled.clone()
        };
        assert_eq!(inside.fate(&own), Fate::Unknown);
        let before = Owner {
            boot: "before".into(),
            ..alive.clone()
        };
        assert_eq!(before.fate(&own), Fate::EarlierBoot);
        let nameless = Owner {
            machine: String::new(),
            ..own.clone()
        };
        let before = Owner {
            machine: String::new(),
            ..before
        };
        assert_eq!(before.fate(&nameless), Fate::Unknown);
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(alive.fate(&own), Fate::Dead);
    }
}
