//! What a shell is told that may follow.

use std::process::Command;

use crate::common::{Brig, Done};

/// As the script of bash asks: the last word is being typed.
fn completed(brig: &Brig, words: &[&str]) -> Vec<String> {
    let mut command = brig.command(["--", "brig"].iter().chain(words));
    command
        .env("BRIG_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true");
    let done = Done(command.output().unwrap()).exits(0).stays_silent();
    done.stdout().lines().map(str::to_owned).collect()
}

#[test]
fn sessions_and_checkpoints_are_completed() {
    let brig = Brig::new();
    // An empty home stays empty.
    assert_eq!(
        completed(&brig, &["session", "inspect", ""])
            .iter()
            .filter(|one| !one.starts_with('-'))
            .count(),
        0
    );
    assert!(!brig.home().join("state").exists());
    for id in ["build", "bench", "other"] {
        brig.run(["session", "create", id]).exits(0);
    }
    brig.run(["session", "create", "other", "--agent", "alice"])
        .exits(0);
    assert_eq!(
        completed(&brig, &["session", "exec", "b"]),
        ["bench", "build"]
    );
    assert_eq!(
        completed(&brig, &["session", "destroy", "ali"]),
        ["alice/other"]
    );
    assert_eq!(
        completed(&brig, &["session", "destroy", "build", "be"]),
        ["bench"]
    );
    assert_eq!(completed(&brig, &["session", "cp", "bui"]), ["build:"]);
    brig.run(["session", "checkpoint", "build", "before"])
        .exits(0);
    brig.run(["session", "checkpoint", "bench", "never"])
        .exits(0);
    assert_eq!(
        completed(&brig, &["session", "restore", "build", ""])
            .into_iter()
            .filter(|one| !one.starts_with('-'))
            .collect::<Vec<_>>(),
        ["before"]
    );
    assert_eq!(
        completed(&brig, &["session", "checkpoint", "build", "--rm", "b"]),
        ["before"]
    );
}

#[test]
fn backends_agents_aliases_and_policies_are_completed() {
    let brig = Brig::new();
    std::fs::create_dir_all(brig.home().join("config/brig")).unwrap();
    let config = "backends: {farm: {kind: docker}}\n";
    std::fs::write(brig.home().join("config/brig/config.yaml"), config).unwrap();
    let backends = completed(&brig, &["run", "--backend", ""]);
    assert!(backends.contains(&"native".to_owned()), "{backends:?}");
    assert!(backends.contains(&"docker:farm".to_owned()), "{backends:?}");
    brig.write("reviewer.yaml", "name: a\ncommand: ['true']\n");
    brig.write("reviewer.txt", "");
    brig.run(["alias", "add", "review", "reviewer.yaml"])
        .exits(0);
    assert_eq!(
        completed(&brig, &["agent", "run", "rev"]),
        ["review", "reviewer.yaml"]
    );
    assert_eq!(
        completed(&brig, &["run", "--policy", "rev"]),
        ["reviewer.yaml"]
    );
    // Bash would put these into the command line as they are.
    for name in [
        "a;touch b.yaml",
        "a$(touch b).yaml",
        "a`id`.yaml",
        "a\n.yaml",
        "a\u{b}&b.yaml",
        "a\u{1b}[31m.yaml",
        "a\u{202e}.yaml",
        "a b.yaml",
    ] {
        brig.write(name, "");
    }
    brig.write("aé-1.yaml", "");
    assert_eq!(
        completed(&brig, &["run", "--policy", "a"])
            .iter()
            .filter(|one| one.as_str() != "aé-1.yaml")
            .collect::<Vec<_>>(),
        [""; 0]
    );
    assert!(completed(&brig, &["run", "--policy", "a"]).contains(&"aé-1.yaml".to_owned()));
    assert_eq!(completed(&brig, &["session", "check"]), ["checkpoint"]);
    assert_eq!(completed(&brig, &["run", "--script"]), ["--script-dir"]);
}

#[test]
fn bash_completes_with_the_script() {
    let brig = Brig::new();
    brig.run(["session", "create", "build"]).exits(0);
    let directory = std::path::Path::new(env!("CARGO_BIN_EXE_brig"))
        .parent()
        .unwrap();
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let script = "source <(brig completions bash); COMP_WORDS=(brig session exec bu); COMP_CWORD=3; \
                  COMP_TYPE=9; _clap_complete_brig brig bu exec; echo \"${COMPREPLY[@]}\"";
    let home = brig.home();
    let done = Command::new("bash")
        .args(["-c", script])
        .env("PATH", path)
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .output()
        .unwrap();
    assert_eq!(Done(done).stdout().trim(), "build");
}
