//! The state directory and what is wrong with it: what is created, who is waited for, and what is said.

use std::process::{Command, Stdio};

use crate::common::{Brig, Done};

/// Runs `brig` with these words in a shell, after these commands.
fn after(brig: &Brig, commands: &str, words: &[&str]) -> Done {
    let program = brig.command(words);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &format!("{commands}; exec \"$0\" \"$@\"")])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(brig.home())
        .stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Done(shell.output().unwrap())
}

#[test]
fn what_only_looks_creates_nothing() {
    let brig = Brig::new();
    brig.run(["session", "ls"]).exits(0);
    for words in [
        ["session", "inspect", "s"].as_slice(),
        &["session", "checkpoint", "s", "--ls"],
        &["session", "network", "show", "s"],
    ] {
        brig.run(words).exits(125).complains("no session `s`");
    }
    brig.run(["session", "destroy", "s"])
        .exits(0)
        .complains("no session `s`");
    assert_eq!(brig.home().read_dir().unwrap().count(), 0);
    // Control: this does.
    brig.run(["session", "create", "s"]).exits(0);
    assert!(brig.home().join("state/brig/sessions").exists());
}

#[test]
fn one_bad_checkpoint_does_not_hide_the_others() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    for name in ["good", "bad"] {
        brig.run(["session", "checkpoint", "s", name]).exits(0);
    }
    let bad = "state/brig/sessions/default/s/checkpoints/bad.json";
    brig.write(bad, "{");
    for words in [
        ["session", "inspect", "s"].as_slice(),
        &["session", "checkpoint", "s", "--ls"],
    ] {
        let done = brig.run(words).exits(0).complains("checkpoints/bad.json");
        assert!(done.stdout().contains("good"), "{done:?}");
        let object = brig.run([words, &["--json"]].concat()).exits(0).json();
        assert_eq!(object["checkpoints"].as_array().unwrap().len(), 1);
        let path = object["unreadable"][0]["path"].as_str().unwrap();
        assert!(path.ends_with("bad.json"), "{object}");
    }
    brig.run(["session", "restore", "s", "good"]).exits(0);
    brig.run(["session", "checkpoint", "s", "--rm", "bad"])
        .exits(0);
    let done = brig.run(["session", "inspect", "s"]).exits(0);
    done.stays_silent();
}

#[test]
fn a_session_without_its_record_is_seen_and_can_be_destroyed() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    let path = brig.home().join("state/brig/sessions/default/s");
    std::fs::remove_file(path.join("session.json")).unwrap();
    let list = brig.run(["session", "ls", "--json"]).exits(0).json();
    assert_eq!(list["sessions"][0]["status"], "failed");
    brig.run(["session", "inspect", "s"])
        .exits(125)
        .complains("session.json is missing");
    brig.run(["session", "destroy", "s"]).exits(0);
    assert!(!path.exists());
}

#[test]
fn it_is_said_for_whom_a_command_waits() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    let hold = "flock state/brig/layers/.lock sleep 3 & sleep 0.5";
    after(&brig, hold, &["session", "checkpoint", "s", "one"])
        .exits(0)
        .complains("waiting for process ")
        .complains("which removes saved states that nobody needs");
    // Control: nobody is waited for.
    brig.run(["session", "checkpoint", "s", "two"])
        .exits(0)
        .stays_silent();
}

#[test]
fn too_few_descriptors_are_named() {
    let brig = Brig::new();
    let words = ["run", "--", "echo", "done"];
    after(&brig, "ulimit -n 20", &words)
        .exits(125)
        .complains("only 20 files may be open")
        .complains("ulimit -n 1024");
    // Control: what may be raised is raised, and what is enough is enough.
    for limit in ["ulimit -Sn 20", "ulimit -n 64"] {
        after(&brig, limit, &words).exits(0).prints("done\n");
    }
}

#[test]
fn a_key_that_others_may_read_has_its_own_hint() {
    let brig = Brig::new();
    let words = ["run", "--", "true"];
    brig.run(words).exits(0);
    let key = brig.home().join("state/brig/audit/key");
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    let done = brig.run(words).exits(125).complains("chmod 600");
    assert!(!done.stderr().contains("disk space"), "{done:?}");
    mode(0o600);
    brig.run(words).exits(0);
}

#[test]
fn without_proc_the_reason_is_proc() {
    let brig = Brig::new();
    let words = ["run", "--", "true"];
    let done = brig.run_with_covers("/proc", words).exits(125);
    assert!(done.stderr().contains("/proc is not mounted"), "{done:?}");
    assert!(!done.stderr().contains("--waive"), "{done:?}");
    // Control: something else is covered.
    brig.run_with_covers("/mnt", words).exits(0);
}

#[test]
fn sudo_does_not_write_into_the_state_of_its_caller() {
    if !rustix::process::geteuid().is_root() {
        brig_testing::skip("sudo", "only root can be started with it");
        return;
    }
    const USER: u32 = 12_345;
    let brig = Brig::new();
    std::os::unix::fs::chown(brig.home(), Some(USER), Some(USER)).unwrap();
    for words in [
        ["run", "--", "true"].as_slice(),
        &["session", "create", "s"],
        &["sandbox", "allow", "a.example"],
        &["approvals", "ls"],
    ] {
        let sudo = |uid: u32| {
            let mut command = brig.command(words);
            Done(command.env("SUDO_UID", uid.to_string()).output().unwrap())
        };
        sudo(USER)
            .exits(125)
            .complains("belongs to user 12345")
            .complains("sudo -H");
        assert_eq!(brig.home().read_dir().unwrap().count(), 0);
        // Control: somebody else called it.
        sudo(USER + 1).exits(0);
        for entry in brig.home().read_dir().unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn doctor_names_a_directory_that_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        brig_testing::skip("unwritable directories", "root writes every directory");
        return;
    }
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    let path = brig.home().join("state/brig/references");
    let doctor = || brig.run(["doctor"]).stdout();
    assert!(!doctor().contains("state/brig/references"), "control");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o500)).unwrap();
    let found = doctor();
    assert!(found.contains("state/brig/references: "), "{found}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
}
