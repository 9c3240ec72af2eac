//! Compiles the seccomp profile, so that a start costs nothing for it, and translates it for
//! container engines.

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
    /// Come first where folders of the host are mounted.
    host_folders: Vec<ProfileRule>,
    /// Come first where the kernel does not guard process 1 from those beside it.
    open_init: Vec<ProfileRule>,
    /// Come first where no control group counts memory.
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
    for (name, groups) in [
        ("workload", vec![]),
        ("workload_folders", vec![&profile.host_folders]),
        ("workload_init", vec![&profile.open_init]),
        (
            "workload_init_folders",
            vec![&profile.open_init, &profile.host_folders],
        ),
        ("workload_memory", vec![&profile.uncounted_memory]),
        (
            "workload_both",
            vec![&profile.host_folders, &profile.uncounted_memory],
        ),
    ] {
        let stricter = groups.into_iter().flat_map(|group| all(group));
        let rules: Vec<Rule> = stricter.chain(all(&profile.rules)).collect();
        write(&format!("{name}.rs"), &rules);
    }
    let engine = serde_json::to_string(&engine(arch, &profile.rules)).expect("it is JSON");
    fs::write(out.join("engine.json"), engine).expect("OUT_DIR is writable");
}

/// In the words of container engines. Their rules have no order and a call with an allowance of
/// its own can't be refused for some arguments, so only what is allowed is said; `sync` is, because
/// programs that write to folders of the host need it.
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
    always.push("sync".into());
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
        syscalls.push(json!({"names": known(rule), "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
    }
    // The guest asks for a keyring of its own, and does without where there are none.
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

/// The number of a call. One that only the other machine has is left out.
fn call(arch: Arch, name: &str) -> Option<u32> {
    let x86 = syscalls::x86_64::Sysno::from_str(name)
        .ok()
        .map(|call| call.id() as u32);
    let arm = syscalls::aarch64::Sysno::from_str(name)
        .ok()
        .map(|call| call.id() as u32);
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
        // Not made, and answered as if it had been.
        "pretend" => Action::Errno(0),
        "EPERM" => Action::Errno(1),
        "ENOSYS" => Action::Errno(38),
        "EACCES" => Action::Errno(13),
        "EAFNOSUPPORT" => Action::Errno(97),
        other => panic!("unknown action {other}"),
    }
}

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").expect("numbers are hexadecimal");
    u64::from_str_radix(digits, 16).expect("numbers are hexadecimal")
}
