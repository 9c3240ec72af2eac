//! The one profile of system calls, `profiles/workload.json`: compiled for the guest, which puts
//! it on every program, and in the words of container engines, which put it on the guest.

macro_rules! compiled {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"))
    };
}

/// The compiled filter: by whether folders of the host are mounted, and whether memory is counted
/// by a control group.
pub fn filter(host_folders: bool, counted: bool) -> &'static [u64] {
    match (host_folders, counted) {
        (false, true) => compiled!("workload"),
        (true, true) => compiled!("workload_folders"),
        (false, false) => compiled!("workload_memory"),
        (true, false) => compiled!("workload_both"),
    }
}

/// The same for gVisor, whose kernel guards process 1 from nobody and counts all memory itself.
pub fn filter_on_gvisor(host_folders: bool) -> &'static [u64] {
    if host_folders {
        compiled!("workload_init_folders")
    } else {
        compiled!("workload_init")
    }
}

/// For engines that take a profile as JSON. What it can't say (all but one value of an argument)
/// it leaves to the filter that the guest sets, and it has what the guest itself needs.
pub const ENGINE: &str = include_str!(concat!(env!("OUT_DIR"), "/engine.json"));

/// Entries of /proc that are covered, or read-only, in every sandbox: a word and a path a line.
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
