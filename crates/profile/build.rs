//! Compiles the seccomp profile at build time, and translates it for container engines.

use std::path::PathBuf;
use std::str::FromStr;
use std::{env, fs};

use brig_linux::seccomp::{self, Action, Arch, Rule, Test};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    default: String,
    rules: Vec<ProfileRule>,
    /// First, if host directories are mounted.
    host_folders: Vec<ProfileRule>,
    /// First, if in addition a connector makes connections.
    mediated_sockets: Vec<ProfileRule>,
    /// First, if in addition there is no connector.
    no_sockets: Vec<ProfileRule>,
    /// First, if in addition host files can be locked.
    no_locks: Vec<ProfileRule>,
    /// First, if the kernel does not protect process 1.
    open_init: Vec<ProfileRule>,
    /// First, if no control group counts memory.
    uncounted_memory: Vec<ProfileRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileRule {
    #[serde(rename = "why")]
    _why: String,
    action: String,
    calls: Vec<String>,
    #[serde(default)]
    tests: Vec<ProfileTest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileTest {
    argument: u8,
    mask: String,
    value: String,
}

const PROFILE: &str = "profiles/workload.json";
/// What the guest needs of engines although its filter restricts or refuses it for programs.
const GUEST: [&str; 2] = ["ioctl", "openat2"];

fn main() {
    println!("cargo::rerun-if-changed={PROFILE}");
    let text = fs::read_to_string(PROFILE).expect("the profile is there");
    let profile: Profile = serde_json::from_str(&text).expect("the profile is well-formed");
    let name = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let arch = Arch::from_name(&name).unwrap_or_else(|| panic!("no seccomp profile for {name}"));

    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let all = |rules: &[ProfileRule]| -> Vec<Rule> {
        rules.iter().flat_map(|rule| compile(arch, rule)).collect()
    };
    let write = |name: &str, rules: &[Rule]| {
        let program = seccomp::compile(arch, rules, action(&profile.default));
        fs::write(out.join(name), format!("&{program:?}")).expect("OUT_DIR is writable");
    };
    let (folders, memory) = (&profile.host_folders, &profile.uncounted_memory);
    let (mediated, none) = (&profile.mediated_sockets, &profile.no_sockets);
    let (init, locks) = (&profile.open_init, &profile.no_locks);
    for (name, groups) in [
        ("workload", vec![]),
        ("workload_memory", vec![memory]),
        ("workload_mediated", vec![mediated, folders]),
        ("workload_mediated_memory", vec![mediated, folders, memory]),
        ("workload_folders", vec![none, locks, folders]),
        (
            "workload_folders_memory",
            vec![none, locks, folders, memory],
        ),
        ("workload_init", vec![init]),
        ("workload_init_folders", vec![init, none, folders]),
    ] {
        let stricter = groups.into_iter().flat_map(|group| all(group));
        let rules: Vec<Rule> = stricter.chain(all(&profile.rules)).collect();
        write(&format!("{name}.rs"), &rules);
    }
    let engine = serde_json::to_string(&engine(arch, &profile.rules)).expect("it is JSON");
    fs::write(out.join("engine.json"), engine).expect("OUT_DIR is writable");
}

/// The profile for container engines. Their rules have no order, and an allowed call can't be refused for some
/// arguments. So it contains only what is allowed, or what the guest's filter answers itself.
fn engine(arch: Arch, rules: &[ProfileRule]) -> Value {
    let allowed = || rules.iter().filter(|rule| rule.action == "allow");
    let known = |rule: &ProfileRule| -> Vec<String> {
        let calls = rule.calls.iter();
        calls
            .filter(|name| call(arch, name).is_some())
            .cloned()
            .collect()
    };
    let mut always: Vec<String> = allowed()
        .filter(|rule| rule.tests.is_empty())
        .flat_map(&known)
        .collect();
    always.extend(GUEST.map(String::from));
    // Of two filters that both refuse, the guest's decides. So what is pretended for some arguments only is left to it.
    let pretended = (rules.iter()).filter(|rule| rule.action == "pretend" && rule.tests.is_empty());
    always.extend(pretended.flat_map(&known));
    let mut syscalls = vec![json!({"names": always, "action": "SCMP_ACT_ALLOW"})];
    for rule in allowed().filter(|rule| !rule.tests.is_empty()) {
        let names: Vec<String> = known(rule)
            .into_iter()
            .filter(|name| !always.contains(name))
            .collect();
        if names.is_empty() {
            continue;
        }
        let args: Vec<Value> = rule
            .tests
            .iter()
            .map(|test| {
                json!({
                    "index": test.argument,
                    "op": "SCMP_CMP_MASKED_EQ",
                    "value": number(&test.mask),
                    "valueTwo": number(&test.value),
                })
            })
            .collect();
        syscalls.push(json!({"names": names, "action": "SCMP_ACT_ALLOW", "args": args}));
    }
    for rule in rules.iter().filter(|rule| rule.action == "ENOSYS") {
        let mut names = known(rule);
        names.retain(|name| !GUEST.contains(&name.as_str()));
        if !names.is_empty() {
            syscalls.push(json!({"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
        }
    }
    // The guest joins a new keyring, and does without if the kernel has none.
    syscalls.push(json!({"names": ["keyctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
    let name = match arch {
        Arch::X86_64 => "SCMP_ARCH_X86_64",
        Arch::Aarch64 => "SCMP_ARCH_AARCH64",
    };
    json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": [name], "syscalls": syscalls})
}

fn compile(arch: Arch, rule: &ProfileRule) -> Vec<Rule> {
    let tests: Vec<Test> = rule
        .tests
        .iter()
        .map(|test| Test {
            argument: test.argument,
            mask: number(&test.mask),
            value: number(&test.value),
        })
        .collect();
    rule.calls
        .iter()
        .filter_map(|name| call(arch, name))
        .map(|call| Rule {
            call,
            tests: tests.clone(),
            action: action(&rule.action),
        })
        .collect()
}

/// The number of a call. Calls of other architectures are left out.
fn call(arch: Arch, name: &str) -> Option<u32> {
    let x86 = syscalls::x86_64::Sysno::from_str(name)
        .ok()
        .and_then(|call| u32::try_from(call.id()).ok());
    let arm = syscalls::aarch64::Sysno::from_str(name)
        .ok()
        .and_then(|call| u32::try_from(call.id()).ok());
    assert!(
        x86.is_some() || arm.is_some(),
        "no system call is named {name}"
    );
    match arch {
        Arch::X86_64 => x86,
        Arch::Aarch64 => arm,
    }
}

fn action(text: &str) -> Action {
    match text {
        "allow" => Action::Allow,
        // Not made, but reported as successful.
        "pretend" => Action::Errno(0),
        "EPERM" => Action::Errno(1),
        "ENOSYS" => Action::Errno(38),
        "EACCES" => Action::Errno(13),
        "ENOTTY" => Action::Errno(25),
        "ENOLCK" => Action::Errno(37),
        "EAFNOSUPPORT" => Action::Errno(97),
        other => panic!("unknown action {other}"),
    }
}

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").expect("numbers are hexadecimal");
    u64::from_str_radix(digits, 16).expect("numbers are hexadecimal")
}
