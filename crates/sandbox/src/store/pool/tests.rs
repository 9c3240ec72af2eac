use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use tempfile::TempDir;

use super::super::checkpoint::CheckpointRecord;
use super::super::home::Home;
use super::super::record::SessionRecord;
use super::super::{Opening, Removal, Store};
use super::*;
use crate::{AgentId, SessionConfig, SessionId};

fn names() -> (AgentId, SessionId) {
    ("agent".parse().expect("name"), "s".parse().expect("name"))
}

/// A session whose head has one file.
fn session(root: &Path) -> Home {
    let (agent, id) = names();
    session_named(root, agent, id)
}

fn record_of(agent: AgentId, id: SessionId) -> SessionRecord {
    SessionRecord {
        version: SessionRecord::VERSION,
        agent,
        id,
        created: Timestamp::now(),
        backend: "fake".parse().expect("name"),
        config: SessionConfig::default(),
        layers: Vec::new(),
        head: 0,
        pinned: Default::default(),
        snapshots: false,
        enforcement: Vec::new(),
    }
}

fn session_named(root: &Path, agent: AgentId, id: SessionId) -> Home {
    let store = Store::open(root).expect("store");
    let home = store.create(record_of(agent, id)).expect("session");
    home.created().expect("created");
    write(&home, "first");
    home
}

/// Replaces the file, as a mirror does: layers are made of hard links.
fn write(home: &Home, text: &str) {
    let file = home.head().path().join("file");
    let _ = fs::remove_file(&file);
    fs::write(file, text).expect("file");
}

fn save(home: &Home, name: &str) -> CheckpointRecord {
    let change = home.store.change().expect("change");
    let name = name.parse().expect("name");
    let record = CheckpointRecord::new(name, home.frozen(&change).expect("frozen"));
    home.write_checkpoint(&record).expect("written");
    change.finish();
    record
}

/// What is in the directory of layers beside the lock.
fn layers(root: &Path) -> Vec<PathBuf> {
    let mut found = entries(&root.join("layers"));
    found.retain(|path| path.file_name().is_some_and(|name| name != ".lock"));
    found
}

fn reopened(root: &Path) -> Home {
    let store = Store::open(root).expect("store");
    let (agent, id) = names();
    match store.try_open(&agent, &id).expect("opened") {
        Opening::Open(home) => *home,
        _ => panic!("the session can't be opened"),
    }
}

/// Does something with a session up to a point where a kill would end it, then starts again and
/// returns how many layers there are.
fn left_after(interrupted: impl FnOnce(&mut Home)) -> (usize, TempDir) {
    let root = tempfile::tempdir().expect("directory");
    let mut home = session(root.path());
    interrupted(&mut home);
    drop(home);
    drop(Store::open(root.path()).expect("store"));
    assert_eq!(entries(&root.path().join("staging")), [] as [PathBuf; 0]);
    (layers(root.path()).len(), root)
}

#[test]
fn a_layer_that_nobody_came_to_refer_to_is_removed_at_the_next_start() {
    let (left, _) = left_after(|home| {
        let change = home.store.change().expect("change");
        let frozen = home.frozen(&change).expect("frozen");
        assert_eq!(frozen.len(), 1);
        assert!(home.store.layer_path(&frozen[0]).exists());
    });
    assert_eq!(left, 0);
}

#[test]
fn a_layer_that_lost_its_last_reference_is_removed_at_the_next_start() {
    let (left, _) = left_after(|home| {
        save(home, "c");
        let _change = home.store.change().expect("change");
        fs::remove_file(home.path.join("checkpoints/c.json")).expect("removed");
    });
    assert_eq!(left, 0);
    let (left, _) = left_after(|home| {
        save(home, "c");
        let _change = home.store.change().expect("change");
        let trash = home.store.root.join("trash/session-1");
        fs::rename(&home.path, trash).expect("taken away");
    });
    assert_eq!(left, 0);
}

#[test]
fn what_is_referred_to_stays_at_the_next_start() {
    let (left, root) = left_after(|home| {
        save(home, "c");
        write(home, "second");
        let change = home.store.change().expect("change");
        home.frozen(&change).expect("frozen");
    });
    assert_eq!(left, 1);
    let home = reopened(root.path());
    let record = home.checkpoint(&"c".parse().expect("name")).expect("c");
    let pool = home.store.pool().expect("pool");
    assert_eq!(pool.verify(&record.layers), Ok(()));
}

#[test]
fn a_change_that_goes_on_elsewhere_is_left_alone() {
    let root = tempfile::tempdir().expect("directory");
    let home = session(root.path());
    let change = home.store.change().expect("change");
    let frozen = home.frozen(&change).expect("frozen");
    drop(Store::open(root.path()).expect("store"));
    assert!(home.store.layer_path(&frozen[0]).exists());
    assert_eq!(entries(&root.path().join("staging")).len(), 1);
}

#[test]
fn nothing_is_removed_while_a_record_cannot_be_read() {
    let root = tempfile::tempdir().expect("directory");
    let home = session(root.path());
    let record = save(&home, "c");
    fs::write(home.path.join("session.json"), "{").expect("damaged");
    let change = home.store.change().expect("change");
    drop(change);
    drop(Store::open(root.path()).expect("store"));
    assert!(home.store.layer_path(&record.layers[0]).exists());
    assert_eq!(entries(&root.path().join("staging")).len(), 1);
}

#[test]
fn a_session_that_goes_takes_its_layers_and_leaves_no_file() {
    let root = tempfile::tempdir().expect("directory");
    let mut home = session(root.path());
    save(&home, "c");
    home.settle().expect("settled");
    home.flatten().expect("flat");
    let (agent, id) = names();
    assert_eq!(layers(root.path()).len(), 1);
    assert!(home.store.destroy(&agent, &id).expect("destroyed"));
    assert!(!home.store.destroy(&agent, &id).expect("nothing there"));
    assert_eq!(layers(root.path()), [] as [PathBuf; 0]);
    assert_eq!(entries(&root.path().join("staging")), [] as [PathBuf; 0]);
}

fn later<'a>() -> Removal<'a> {
    Removal {
        collects_later: true,
        ..Removal::default()
    }
}

#[test]
fn what_many_sessions_leave_is_removed_at_once() {
    let root = tempfile::tempdir().expect("directory");
    let ids = ["a", "b", "c"].map(|id| id.parse::<SessionId>().expect("a name"));
    let (agent, _) = names();
    let mut homes: Vec<Home> = Vec::new();
    for id in &ids {
        let home = session_named(root.path(), agent.clone(), id.clone());
        write(&home, id.as_str());
        save(&home, "c");
        homes.push(home);
    }
    let store = homes[0].store.clone();
    drop(homes);
    for id in &ids[..2] {
        assert!(store.remove(&agent, id, later()).expect("destroyed"));
    }
    assert_eq!(layers(root.path()).len(), 3, "control");
    store.collect_unfinished();
    assert_eq!(layers(root.path()).len(), 1);
    assert_eq!(entries(&root.path().join("staging")), [] as [PathBuf; 0]);
    // At the latest the next start does it.
    assert!(store.remove(&agent, &ids[2], later()).expect("destroyed"));
    drop(Store::open(root.path()).expect("store"));
    assert_eq!(layers(root.path()), [] as [PathBuf; 0]);
}

/// Destroys a session of another agent, which removes the layers that nobody needs.
fn destroy_another(root: &Path) {
    let (agent, id): (AgentId, SessionId) = (
        "other".parse().expect("name"),
        "other".parse().expect("name"),
    );
    let home = session_named(root, agent.clone(), id.clone());
    write(&home, "of the other");
    let own = save(&home, "c").layers[0].clone();
    assert!(home.store.destroy(&agent, &id).expect("destroyed"));
    assert!(
        !home.store.layer_path(&own).exists() || !home.store.unreadable().expect("list").is_empty(),
        "control: what nobody needs is removed, if all could be read"
    );
}

/// A session with a saved state, and what a saved state of it needs.
fn saved(root: &Path) -> (PathBuf, PathBuf) {
    let home = session(root);
    let layer = save(&home, "c").layers[0].clone();
    (home.path.clone(), home.store.layer_path(&layer))
}

fn problems(root: &Path) -> usize {
    let store = Store::open(root).expect("store");
    store.unreadable().expect("list").len() + store.missing().map_or(0, |missing| missing.len())
}

#[test]
fn a_directory_that_cannot_be_read_keeps_its_layers() {
    if rustix::process::geteuid().is_root() {
        return brig_testing::skip("unreadable sessions", "root reads every directory");
    }
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    };
    for closed in [
        path.parent().expect("agent"),
        &path,
        &path.join("checkpoints"),
    ] {
        mode(closed, 0);
        destroy_another(root.path());
        assert_eq!(problems(root.path()), 1, "{closed:?}");
        mode(closed, 0o700);
        assert!(layer.exists(), "{closed:?}");
    }
    destroy_another(root.path());
    assert_eq!(problems(root.path()), 0);
    assert!(layer.exists());
}

#[test]
fn a_session_without_checkpoints_is_whole() {
    let root = tempfile::tempdir().expect("directory");
    let mut home = session(root.path());
    home.settle().expect("settled");
    let layer = home.layer_paths()[0].clone();
    fs::remove_dir(home.path.join("checkpoints")).expect("it is empty");
    drop(home);
    destroy_another(root.path());
    assert!(layer.exists());
    let home = reopened(root.path());
    save(&home, "c");
    assert!(home.has_checkpoint(&"c".parse().expect("name")));
    assert_eq!(problems(root.path()), 0);
}

#[test]
fn a_session_that_was_moved_aside_finds_its_layers_again() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let aside = root.path().join("aside");
    for whole in [path.clone(), path.parent().expect("agent").to_owned()] {
        fs::rename(&whole, &aside).expect("moved");
        destroy_another(root.path());
        assert_eq!(problems(root.path()), 1, "{whole:?}");
        assert!(layer.exists(), "{whole:?}");
        fs::create_dir_all(whole.parent().expect("parent")).expect("directory");
        fs::rename(&aside, &whole).expect("moved back");
        assert_eq!(problems(root.path()), 0, "{whole:?}");
    }
    let home = reopened(root.path());
    let record = home.checkpoint(&"c".parse().expect("name")).expect("c");
    let pool = home.store.pool().expect("pool");
    assert_eq!(pool.verify(&record.layers), Ok(()));
    drop(pool);
    // One of the same name is another session.
    fs::rename(&path, &aside).expect("moved");
    session(root.path());
    destroy_another(root.path());
    assert!(layer.exists());
    // Given up, they go.
    let store = Store::open(root.path()).expect("store");
    for missing in store.missing().expect("list") {
        missing.forget().expect("forgotten");
    }
    destroy_another(root.path());
    assert!(!layer.exists());
}

#[test]
fn a_session_without_its_record_keeps_its_layers_until_it_is_destroyed() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    fs::remove_file(path.join("session.json")).expect("removed");
    destroy_another(root.path());
    assert!(layer.exists());
    let store = Store::open(root.path()).expect("store");
    let (agent, id) = names();
    assert!(store.destroy(&agent, &id).expect("destroyed"));
    // Which session it was is not known, so its notes stay until they are given up.
    assert!(layer.exists());
    for missing in store.missing().expect("list") {
        missing.forget().expect("forgotten");
    }
    destroy_another(root.path());
    assert!(!layer.exists());
    assert_eq!(problems(root.path()), 0);
    assert_eq!(entries(&root.path().join("references")), [] as [PathBuf; 0]);
}

#[test]
fn checkpoints_that_were_moved_aside_find_their_layers_again() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let aside = root.path().join("aside");
    fs::rename(path.join("checkpoints"), &aside).expect("moved");
    destroy_another(root.path());
    assert!(layer.exists());
    fs::rename(aside, path.join("checkpoints")).expect("moved back");
    destroy_another(root.path());
    assert!(layer.exists());
    // A checkpoint that is removed alone is needed no more.
    fs::remove_file(path.join("checkpoints/c.json")).expect("removed");
    destroy_another(root.path());
    assert!(!layer.exists());
}

#[test]
fn a_session_behind_a_link_keeps_its_layers() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let aside = root.path().join("aside");
    fs::rename(&path, &aside).expect("moved");
    std::os::unix::fs::symlink(&aside, &path).expect("link");
    destroy_another(root.path());
    assert!(layer.exists());
}

#[test]
fn what_is_destroyed_does_not_take_the_layers_of_its_original_along() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let copy = path.with_file_name("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&path, &copy])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let store = Store::open(root.path()).expect("store");
    let (agent, id) = names();
    let named: SessionId = "copy".parse().expect("name");
    assert!(store.destroy(&agent, &named).expect("destroyed"));
    assert!(layer.exists());
    assert!(store.destroy(&agent, &id).expect("destroyed"));
    assert!(!layer.exists());
}

#[test]
fn a_session_that_was_destroyed_is_not_made_again() {
    let root = tempfile::tempdir().expect("directory");
    let (agent, id) = names();
    let mut home = session(root.path());
    let record = save(&home, "c");
    write(&home, "second");
    // Another process destroys it.
    assert!(home.store.destroy(&agent, &id).expect("destroyed"));
    let unknown = |done: crate::Result<()>| {
        assert!(matches!(done, Err(Error::NoSession { .. })), "{done:?}");
    };
    unknown(home.change().map(drop));
    unknown(home.settle());
    unknown(home.flatten());
    unknown(home.restore(record.layers.clone()));
    unknown(home.remove_checkpoint(&record.name));
    assert!(home.write_checkpoint(&record).is_err());
    assert_eq!(entries(&root.path().join("sessions")), [] as [PathBuf; 0]);
    drop(home);
    drop(Store::open(root.path()).expect("store"));
    assert_eq!(entries(&root.path().join("staging")), [] as [PathBuf; 0]);
}

#[test]
fn a_session_with_closed_directories_is_removed() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().expect("directory");
    let (path, _) = saved(root.path());
    let closed = path.join("checkpoints");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o0)).expect("mode");
    let store = Store::open(root.path()).expect("store");
    let (agent, id) = names();
    assert!(store.destroy(&agent, &id).expect("destroyed"));
    assert_eq!(entries(&root.path().join("trash")), [] as [PathBuf; 0]);
}

#[test]
fn a_session_is_not_destroyed_while_it_is_changed() {
    let root = tempfile::tempdir().expect("directory");
    let home = session(root.path());
    let change = home.change().expect("change");
    let (store, (agent, id)) = (home.store.clone(), names());
    let destroying = std::thread::spawn(move || store.destroy(&agent, &id));
    std::thread::sleep(std::time::Duration::from_millis(200));
    let record = CheckpointRecord::new("c".parse().expect("name"), Vec::new());
    home.write_checkpoint(&record).expect("it is there");
    change.finish();
    assert!(destroying.join().expect("thread").expect("destroyed"));
    assert!(!home.path.exists());
}

#[test]
fn a_session_that_never_came_to_be_leaves_no_note() {
    let (left, root) = left_after(|home| {
        save(home, "c");
        // Killed before the directory got its name.
        let staging = home.store.root.join("staging/s");
        fs::create_dir(&staging).expect("directory");
        let mut record = home.record.clone();
        record.id = "unborn".parse().expect("name");
        let layers = home
            .checkpoint(&"c".parse().expect("name"))
            .expect("c")
            .layers;
        fs::write(staging.join("lock"), "").expect("lock");
        fs::write(
            staging.join("session.json"),
            serde_json::to_vec(&record).expect("json"),
        )
        .expect("record");
        home.store.note(&record, &layers).expect("noted");
        assert_eq!(home.store.missing().expect("list").len(), 1, "control");
    });
    assert_eq!(left, 1);
    assert_eq!(problems(root.path()), 0);
}

#[test]
fn what_code_wrote_into_its_workspace_decides_nothing_in_the_trash() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let store = Store::open(root.path()).expect("store");
    // A directory that code filled with the record of a session, on its way out.
    let planted = root.path().join("trash/0123");
    fs::create_dir(&planted).expect("directory");
    fs::copy(path.join("session.json"), planted.join("session.json")).expect("copied");
    fs::rename(&path, root.path().join("aside")).expect("moved");
    store.sweep();
    assert!(!planted.exists());
    destroy_another(root.path());
    assert!(layer.exists());
}

#[test]
fn a_copy_is_destroyed_with_its_own_notes() {
    let root = tempfile::tempdir().expect("directory");
    let (path, layer) = saved(root.path());
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&path, &path.with_file_name("copy")])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    destroy_another(root.path());
    let aside = root.path().join("aside");
    fs::rename(&path, &aside).expect("moved");
    let store = Store::open(root.path()).expect("store");
    let (agent, _) = names();
    let copy: SessionId = "copy".parse().expect("name");
    assert!(store.destroy(&agent, &copy).expect("destroyed"));
    assert!(layer.exists());
    assert_eq!(problems(root.path()), 1, "only the original is missing");
}

/// A session that was about to be created when its process ended.
fn abandoned(root: &Path, id: &str) -> PathBuf {
    let store = Store::open(root).expect("store");
    let (agent, id) = (names().0, id.parse().expect("a name"));
    let home = store.create(record_of(agent, id)).expect("begun");
    home.path.clone()
}

#[test]
fn what_was_never_created_is_not_there_and_makes_room() {
    let root = tempfile::tempdir().expect("directory");
    let (agent, id) = names();
    let path = abandoned(root.path(), id.as_str());
    let store = Store::open(root.path()).expect("store");
    assert!(path.join("creating").exists(), "control");
    assert!(!store.has(&agent, &id).expect("seen") && !store.exists(&agent, &id));
    assert_eq!(store.listing().expect("list").names, []);
    let home = store
        .create(record_of(agent.clone(), id.clone()))
        .expect("another");
    // While it is created, it is nobody's to remove.
    assert!(store.has(&agent, &id).expect("seen"));
    store.remove_all_abandoned().expect("looked");
    let taken = store.create(record_of(agent.clone(), id.clone()));
    assert!(
        matches!(taken, Err(Error::SessionExists { .. })),
        "{taken:?}"
    );
    home.created().expect("created");
    drop(home);
    store.remove_all_abandoned().expect("looked");
    assert!(store.exists(&agent, &id));
}

#[test]
fn what_can_not_be_locked_is_not_abandoned() {
    let root = tempfile::tempdir().expect("directory");
    let (agent, id) = names();
    let path = abandoned(root.path(), id.as_str());
    fs::remove_file(path.join("lock")).expect("removed");
    let store = Store::open(root.path()).expect("store");
    store.remove_all_abandoned().expect("looked");
    assert!(store.has(&agent, &id).expect("seen"));
    assert!(!path.join("lock").exists());
}

#[test]
fn only_the_own_session_is_removed() {
    let root = tempfile::tempdir().expect("directory");
    let (agent, id) = names();
    let mine = session(root.path());
    let store = mine.store.clone();
    assert!(store.destroy(&agent, &id).expect("destroyed"));
    let other = session(root.path());
    let only = |home| Removal {
        only: Some(home),
        ..Removal::default()
    };
    assert!(!store.remove(&agent, &id, only(&mine)).expect("looked"));
    assert!(matches!(mine.created(), Err(Error::NoSession { .. })));
    assert!(other.in_place());
    assert!(store.remove(&agent, &id, only(&other)).expect("removed"));
    assert!(!other.in_place());
}

#[test]
fn a_session_in_use_is_not_removed_as_unused() {
    let root = tempfile::tempdir().expect("directory");
    let (agent, id) = names();
    let home = session(root.path());
    let store = home.store.clone();
    let since = |at| Removal {
        unused_since: Some(at),
        ..Removal::default()
    };
    let later = SystemTime::now() + Duration::from_secs(60);
    let busy = |removed: Result<bool>| matches!(removed, Err(Error::SessionBusy { .. }));
    assert!(busy(store.remove(&agent, &id, since(later))), "it is open");
    drop(home);
    let long_ago = SystemTime::UNIX_EPOCH;
    assert!(
        busy(store.remove(&agent, &id, since(long_ago))),
        "it was used"
    );
    assert!(store.remove(&agent, &id, since(later)).expect("removed"));
}

#[test]
fn a_name_that_is_taken_leaves_no_notes() {
    let root = tempfile::tempdir().expect("directory");
    let mut home = session(root.path());
    save(&home, "c");
    home.settle().expect("settled");
    let record = SessionRecord {
        created: Timestamp::now(),
        ..home.record.clone()
    };
    assert!(!record.layers.is_empty(), "control");
    let taken = home.store.create(record);
    assert!(matches!(taken, Err(Error::SessionExists { .. })));
    assert_eq!(home.store.missing().expect("looked").len(), 0);
    assert_eq!(entries(&root.path().join("references/agent/s")).len(), 1);
}
