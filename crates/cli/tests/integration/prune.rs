//! `brig prune` and `brig session destroy --all`.

use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

use crate::common::Brig;

/// As if nobody had used it for so long.
fn age(brig: &Brig, id: &str, days: u64) {
    let path = brig.home().join("state/brig/sessions/default").join(id);
    let at = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let times = FileTimes::new().set_modified(at).set_accessed(at);
    let entries = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in entries.collect::<Vec<_>>().into_iter().chain([path]) {
        File::open(path).unwrap().set_times(times).unwrap();
    }
}

fn ids(brig: &Brig) -> Vec<String> {
    let list = brig.run(["session", "ls", "--json"]).exits(0).json();
    let sessions = list["sessions"].as_array().unwrap().iter();
    sessions
        .map(|one| one["session_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn old_sessions_are_listed_and_removed_only_if_confirmed() {
    let brig = Brig::new();
    for id in ["old", "new"] {
        brig.run(["session", "create", id]).exits(0);
        brig.run([
            "session",
            "exec",
            id,
            "-c",
            "open('x', 'w').write('x' * 100000)",
        ])
        .exits(0);
    }
    age(&brig, "old", 40);
    let layer = brig.home().join("state/brig/layers").join("0".repeat(64));
    std::fs::create_dir(&layer).unwrap();
    std::fs::write(layer.join("file"), "left by a crash").unwrap();
    let done = brig
        .run(["prune"])
        .exits(0)
        .complains("would free up to")
        .complains("the audit log has")
        .complains("--yes");
    assert!(done.stdout().contains("default/old"), "{}", done.stdout());
    assert!(done.stdout().contains("1 saved state"), "{}", done.stdout());
    assert!(!done.stdout().contains("default/new"), "{}", done.stdout());
    assert_eq!(ids(&brig), ["new", "old"]);
    assert!(layer.exists());

    let records = brig
        .run(["audit", "show", "--json"])
        .stdout()
        .lines()
        .count();
    let object = brig.run(["prune", "--yes", "--json"]).exits(0).json();
    assert_eq!(object["removed"], true);
    assert_eq!(object["sessions"][0]["session_id"], "old");
    assert!(object["bytes"].as_u64().unwrap() >= 100_000, "{object}");
    assert_eq!(ids(&brig), ["new"]);
    assert!(!layer.exists());
    // Evidence stays, and says what happened.
    assert!(
        brig.run(["audit", "show", "--json"])
            .stdout()
            .lines()
            .count()
            > records
    );
    brig.run(["prune", "--yes"])
        .exits(0)
        .complains("nothing to remove");
    assert_eq!(ids(&brig), ["new"]);
}

#[test]
fn all_sessions_are_destroyed_only_if_confirmed() {
    let brig = Brig::new();
    for id in ["a", "b"] {
        brig.run(["session", "create", id]).exits(0);
    }
    brig.run(["session", "destroy", "--all"])
        .exits(125)
        .complains("--all destroys 2 sessions")
        .complains("--yes");
    brig.run(["session", "destroy"]).exits(125);
    brig.run(["session", "destroy", "--all", "a"]).exits(125);
    assert_eq!(ids(&brig), ["a", "b"]);
    brig.run(["session", "destroy", "--all", "--yes"]).exits(0);
    assert!(ids(&brig).is_empty());
}

#[test]
fn a_link_among_the_sessions_is_not_one() {
    let brig = Brig::new();
    brig.run(["session", "create", "own"]).exits(0);
    let outside = brig.home().join("outside/kept");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("file"), "kept").unwrap();
    let sessions = brig.home().join("state/brig/sessions");
    std::os::unix::fs::symlink(brig.home().join("outside"), sessions.join("linked")).unwrap();
    std::os::unix::fs::symlink(&outside, sessions.join("default/link")).unwrap();
    assert_eq!(ids(&brig), ["own"]);
    brig.run(["session", "destroy", "linked/kept"])
        .exits(0)
        .complains("no session");
    brig.run(["prune", "--before", "0s", "--yes"]).exits(0);
    brig.run(["session", "destroy", "--all", "--yes"]).exits(0);
    assert_eq!(ids(&brig), [""; 0]);
    assert!(outside.join("file").exists());
}
