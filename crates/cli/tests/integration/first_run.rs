//! What a new user meets first: as root, as an ordinary user, with and without control groups.

use std::fs;

use serde_json::Value;

use crate::common::Brig;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

fn control(doctor: &Value, name: &str) -> Value {
    let controls = doctor["backends"][0]["controls"].as_array().unwrap();
    let found = controls.iter().find(|state| state["control"] == name);
    found
        .unwrap_or_else(|| panic!("{name} in {doctor}"))
        .clone()
}

#[test]
fn a_memory_limit_needs_no_control_group_but_says_what_it_is() {
    let brig = Brig::new();
    let run = ["run", "--memory", "256M", "--cpu", "0.5", "-c", "print(1)"];
    brig.run(run).exits(0).prints("1\n");
    let without = brig.run_with_covers(CGROUPS, run).exits(0).prints("1\n");
    without
        .complains("note: the limit of 256M of memory is only observed here")
        .complains("note: the limit of 0.5 CPUs is only observed here")
        .complains("--require memory");
    // A default says nothing, and neither does what was waived.
    brig.run_with_covers(CGROUPS, ["run", "-c", "print(1)"])
        .exits(0)
        .stays_silent();
    let waived = [
        "run", "--memory", "1G", "--waive", "memory", "-c", "print(1)",
    ];
    brig.run_with_covers(CGROUPS, waived)
        .exits(0)
        .stays_silent();
    let created = ["session", "create", "--memory", "256M", "limited"];
    let created = brig.run_with_covers(CGROUPS, created).exits(0);
    assert_eq!(created.stderr().matches("only observed here").count(), 1);
    let report = ["run", "--json", "--memory", "256M", "-c", "print(1)"];
    let report = brig.run_with_covers(CGROUPS, report).exits(0).json();
    let memory = report["enforcement"].as_array().unwrap();
    let memory = memory.iter().find(|state| state["control"] == "memory");
    assert_eq!(memory.unwrap()["strength"], "observed");
}

#[test]
fn who_requires_a_control_gets_it_or_nothing() {
    let brig = Brig::new();
    let required = ["run", "--require", "memory", "-c", "print(1)"];
    brig.run_with_covers(CGROUPS, required)
        .exits(125)
        .prints("")
        .complains("policy.unenforceable")
        .complains("or leave out --require memory");
    let doctor = brig.run(["doctor", "--json"]).exits(0).json();
    if control(&doctor, "memory")["strength"] == "enforced" {
        brig.run(required).exits(0).prints("1\n");
    }
    // A policy is a requirement too.
    brig.write(
        "small.yaml",
        "version: \"1.0\"\nname: small\nrules: []\ndefaults: {action: allow, max_memory_mb: 256}\n",
    );
    let governed = [
        "run",
        "--policy",
        "small.yaml",
        "--memory",
        "128M",
        "-c",
        "1",
    ];
    brig.run_with_covers(CGROUPS, governed)
        .exits(125)
        .complains("policy.unenforceable");
    let both = ["run", "--require", "memory", "--waive", "memory", "-c", "1"];
    brig.run(both).exits(125).complains("both required");
    // A policy does not waive what a flag requires.
    brig.write(
        "waives.yaml",
        "name: waives\ndefaults: {action: allow}\nwaive: [memory]\n",
    );
    let waived = ["run", "--policy", "waives.yaml", "-c", "1"];
    brig.run_with_covers(CGROUPS, waived).exits(0);
    let required = [&waived[..3], &["--require", "memory", "-c", "1"]].concat();
    brig.run_with_covers(CGROUPS, required)
        .exits(125)
        .complains("policy.unenforceable");
}

#[test]
fn a_covered_proc_is_explained_and_doctor_lists_nothing_as_enforced() {
    let brig = Brig::new();
    let covers = "/proc/interrupts";
    brig.run_with_covers(covers, ["run", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("parts of /proc are covered (/proc/interrupts)")
        .complains("hint: allow it in the container around Brig");
    let doctor = brig
        .run_with_covers(covers, ["doctor", "--json"])
        .exits(125);
    let native = doctor.json()["backends"][0].clone();
    assert_eq!(native["usable"], false);
    assert_eq!(native["problem"]["code"], "backend.nested");
    assert_eq!(native["controls"], serde_json::json!([]));
    let findings = native["findings"].as_array().unwrap();
    let proc = findings.iter().find(|finding| finding["what"] == "/proc");
    assert_eq!(proc.unwrap()["good"], false);
    // The same world without a cover of /proc.
    let control = brig.run_with_covers(CGROUPS, ["doctor", "--json"]);
    assert_eq!(control.exits(0).json()["backends"][0]["usable"], true);
}

#[test]
fn doctor_says_if_nothing_can_be_kept() {
    let brig = Brig::new();
    brig.write("file", "");
    let doctor = |state: &str| {
        let mut command = brig.command(["doctor", "--json"]);
        command.env("XDG_STATE_HOME", brig.home().join(state));
        crate::common::Done(command.output().unwrap())
    };
    doctor("new/state").exits(0);
    let object = doctor("file/state").exits(125).json();
    assert_eq!(object["state"]["problem"]["code"], "state.unwritable");
    assert_eq!(object["backends"][0]["usable"], true);
    let mut run = brig.command(["run", "-c", "print(1)"]);
    run.env("XDG_STATE_HOME", brig.home().join("file/state"));
    crate::common::Done(run.output().unwrap())
        .exits(125)
        .prints("")
        .complains("XDG_STATE_HOME");
}

#[test]
fn a_host_workspace_is_not_the_home_directory() {
    let brig = Brig::new();
    fs::create_dir(brig.home().join("project")).unwrap();
    let script = "cd && pwd && mkdir -p ~/.cache/x && touch ~/.config && ls -A /workspace && \
                  test \"$(getent passwd nobody | cut -d: -f6)\" = \"$HOME\"";
    brig.run(["run", "-w", "project", "--", "sh", "-c", script])
        .exits(0)
        .prints("/tmp/home\n");
    let left = fs::read_dir(brig.home().join("project")).unwrap();
    assert_eq!(left.count(), 0);
    // Without a host directory, home is what a session keeps.
    brig.run(["run", "--", "sh", "-c", "cd && pwd"])
        .exits(0)
        .prints("/workspace\n");
    brig.run(["run", "-w", "no-such", "--", "true"])
        .exits(125)
        .complains("it does not exist")
        .complains("mkdir -p");
}

#[test]
fn a_toolchain_in_an_odd_place_is_mounted_and_found() {
    let brig = Brig::new();
    let bin = brig.home().join("tools/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("odd-tool"), "#!/bin/sh\necho odd \"$1\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("odd-tool"), mode).unwrap();
    brig.run(["run", "--", "odd-tool", "x"]).exits(127);
    let mount = format!("{}:/opt/tools", brig.home().join("tools").display());
    let path = "PATH=/opt/tools/bin:/usr/local/bin:/usr/bin:/bin";
    brig.run(["run", "-v", &mount, "-e", path, "--", "odd-tool", "x"])
        .exits(0)
        .prints("odd x\n");
    let write = [
        "run",
        "-v",
        &mount,
        "-e",
        path,
        "--",
        "touch",
        "/opt/tools/x",
    ];
    assert_ne!(brig.run(write).0.status.code(), Some(0));
}
