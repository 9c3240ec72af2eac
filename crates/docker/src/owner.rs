//! The owner of a container, in its labels, and whether that process still runs.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

use brig_layers::hex;
use brig_linux::process_stat::ProcessStat;
use sha2::{Digest, Sha256};

/// On everything that Brig creates in an engine. Its value identifies the process.
pub const LABEL: &str = "brig.owner";
const MACHINE: &str = "brig.machine";
const BOOT: &str = "brig.boot";
const NAMESPACE: &str = "brig.pids";

/// A process, identified across machines and reboots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerOwner {
    /// Empty on a machine without an id.
    machine: String,
    boot: String,
    /// The PID namespace of the process id.
    namespace: String,
    pid: u32,
    /// Start time in clock ticks since boot, because process ids are reused.
    started: u64,
}

/// Whether an owner still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    Alive,
    Dead,
    /// From an earlier boot of this machine: dead, unless two machines have the same id.
    EarlierBoot,
    Unknown,
}

impl ContainerOwner {
    pub(crate) fn of_process() -> Self {
        static OWN: OnceLock<ContainerOwner> = OnceLock::new();
        let look = || {
            let pid = std::process::id();
            Self {
                machine: machine(),
                boot: boot_id(),
                namespace: namespace(),
                pid,
                started: started(pid).unwrap_or_default(),
            }
        };
        OWN.get_or_init(look).clone()
    }

    pub(crate) fn labels(&self) -> HashMap<String, String> {
        [
            (LABEL, format!("{}.{}", self.pid, self.started)),
            (MACHINE, self.machine.clone()),
            (BOOT, self.boot.clone()),
            (NAMESPACE, self.namespace.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Which machine it is on.
    pub(crate) fn machine_label(&self) -> HashMap<String, String> {
        HashMap::from([(MACHINE.to_owned(), self.machine.clone())])
    }

    pub(crate) fn from_labels(labels: &HashMap<String, String>) -> Option<Self> {
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
    pub(crate) fn state(&self, own: &ContainerOwner) -> OwnerState {
        if self == own {
            return OwnerState::Alive;
        }
        if self.boot.is_empty() || self.machine != own.machine {
            return OwnerState::Unknown;
        }
        if self.boot != own.boot {
            return if own.machine.is_empty() {
                OwnerState::Unknown
            } else {
                OwnerState::EarlierBoot
            };
        }
        if self.namespace.is_empty() || self.namespace != own.namespace {
            return OwnerState::Unknown;
        }
        match started(self.pid) {
            Some(started) if started == self.started => OwnerState::Alive,
            // Without permission to check, nothing is certain.
            None if fs::metadata(format!("/proc/{}", self.pid)).is_ok() => OwnerState::Unknown,
            _ => OwnerState::Dead,
        }
    }
}

/// A digest, because the machine id is confidential (machine-id(5)).
fn machine() -> String {
    let id = read("/etc/machine-id");
    if id.is_empty() {
        return String::new();
    }
    hex(&Sha256::digest(format!("brig\n{id}")))[..32].to_owned()
}

/// Of the kernel of this machine; empty if it does not tell.
pub(crate) fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id")
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

fn started(pid: u32) -> Option<u64> {
    Some(ProcessStat::of(pid).ok()?.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_carry_the_whole_owner() {
        let own = ContainerOwner::of_process();
        assert!(own.started > 0);
        assert_eq!(
            ContainerOwner::from_labels(&own.labels()),
            Some(own.clone())
        );
        let mut torn = own.labels();
        torn.remove(BOOT);
        assert_eq!(ContainerOwner::from_labels(&torn), None);
        for odd in ["", "1", "x.1", "1.x"] {
            let mut labels = own.labels();
            labels.insert(LABEL.into(), odd.into());
            assert_eq!(ContainerOwner::from_labels(&labels), None, "{odd}");
        }
    }

    #[test]
    fn only_who_is_provably_dead_is_dead() {
        let own = ContainerOwner {
            machine: "m".into(),
            ..ContainerOwner::of_process()
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("child");
        let alive = ContainerOwner {
            pid: child.id(),
            started: started(child.id()).expect("started"),
            ..own.clone()
        };
        assert_eq!(own.state(&own), OwnerState::Alive);
        assert_eq!(alive.state(&own), OwnerState::Alive);
        let recycled = ContainerOwner {
            started: alive.started + 1,
            ..alive.clone()
        };
        assert_eq!(recycled.state(&own), OwnerState::Dead);
        let elsewhere = ContainerOwner {
            machine: "other".into(),
            ..recycled.clone()
        };
        assert_eq!(elsewhere.state(&own), OwnerState::Unknown);
        let inside = ContainerOwner {
            namespace: "pid:[1]".into(),
            ..recycled.clone()
        };
        assert_eq!(inside.state(&own), OwnerState::Unknown);
        let before = ContainerOwner {
            boot: "before".into(),
            ..alive.clone()
        };
        assert_eq!(before.state(&own), OwnerState::EarlierBoot);
        let nameless = ContainerOwner {
            machine: String::new(),
            ..own.clone()
        };
        let before = ContainerOwner {
            machine: String::new(),
            ..before
        };
        assert_eq!(before.state(&nameless), OwnerState::Unknown);
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(alive.state(&own), OwnerState::Dead);
    }
}
