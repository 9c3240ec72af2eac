//! The system call profile, `profiles/workload.json`: compiled for the guest, which applies it to every program,
//! and as JSON for container engines, which apply it to the guest.

macro_rules! compiled {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"))
    };
}

/// Whether host directories are mounted, and how programs are kept from the sockets in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folders {
    /// No host directories.
    None,
    /// A connector makes connections for programs, after checking them.
    Mediated,
    /// Programs can't create Unix sockets.
    NoSockets,
}

/// The compiled filter. `counted`: whether a control group counts memory.
pub fn filter(folders: Folders, counted: bool) -> &'static [u64] {
    match (folders, counted) {
        (Folders::None, true) => compiled!("workload"),
        (Folders::None, false) => compiled!("workload_memory"),
        (Folders::Mediated, true) => compiled!("workload_mediated"),
        (Folders::Mediated, false) => compiled!("workload_mediated_memory"),
        (Folders::NoSockets, true) => compiled!("workload_folders"),
        (Folders::NoSockets, false) => compiled!("workload_folders_memory"),
    }
}

/// The same for gVisor, whose kernel does not protect process 1 and counts all memory itself.
pub fn filter_on_gvisor(folders: Folders) -> &'static [u64] {
    match folders {
        Folders::None => compiled!("workload_init"),
        Folders::Mediated | Folders::NoSockets => compiled!("workload_init_folders"),
    }
}

/// For engines. What JSON profiles can't express (all but one value of an argument) is left to the filter that
/// the guest installs. It also allows what the guest itself needs.
pub const ENGINE: &str = include_str!(concat!(env!("OUT_DIR"), "/engine.json"));

/// Entries of /proc that are covered or read-only in every sandbox: a keyword and a path per line.
pub const PROC: &str = include_str!("../profiles/proc.txt");

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn rules() -> Vec<Value> {
        let profile: Value = serde_json::from_str(super::ENGINE).expect("JSON");
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        profile["syscalls"].as_array().expect("rules").clone()
    }

    fn of(call: &str) -> Vec<Value> {
        let named = |rule: &Value| {
            let names = rule["names"].as_array().expect("names");
            names.iter().any(|name| name == call)
        };
        rules().into_iter().filter(named).collect()
    }

    #[test]
    fn an_engine_is_told_what_programs_and_the_guest_need() {
        for call in [
            "read",
            "execve",
            "seccomp",
            "landlock_restrict_self",
            "ioctl",
            "openat2",
            "prctl",
            "pidfd_open",
        ] {
            let rules = of(call);
            assert_eq!(rules.len(), 1, "{call}");
            assert_eq!(rules[0]["action"], "SCMP_ACT_ALLOW", "{call}");
            assert!(rules[0].get("args").is_none(), "{call}");
        }
    }

    #[test]
    fn an_engine_is_not_told_of_what_nobody_may_do() {
        for call in [
            "mount",
            "unshare",
            "setns",
            "bpf",
            "ptrace",
            "add_key",
            "io_uring_setup",
            "open_by_handle_at",
            "kexec_load",
        ] {
            assert!(of(call).is_empty(), "{call}");
        }
    }

    #[test]
    fn arguments_are_masked_and_compared() {
        let clone = of("clone");
        assert_eq!(clone.len(), 1);
        let argument = &clone[0]["args"][0];
        assert_eq!(argument["op"], "SCMP_CMP_MASKED_EQ");
        assert_eq!(argument["value"], 0xffff_ffff_7e02_0000u64);
        assert_eq!(argument["valueTwo"], 0);
        assert_eq!(
            of("clone3")[0]["errnoRet"],
            38,
            "so that programs fall back"
        );
        assert!(of("socket").len() > 8, "each family and protocol by itself");
    }

    #[test]
    fn no_argument_is_compared_twice_in_one_rule() {
        for rule in rules() {
            let indices: Vec<&Value> = rule["args"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|arg| &arg["index"])
                .collect();
            let mut unique = indices.clone();
            unique.dedup();
            assert_eq!(indices, unique, "{rule}");
        }
    }
}
