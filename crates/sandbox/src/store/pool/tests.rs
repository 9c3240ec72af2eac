use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tempfile::TempDir;

use super::super::checkpoint::CheckpointRecord;
use super::super::home::Home;
use super::super::record::SessionRecord;
use super::super::{Opening, Store};
use super::*;
use crate::{AgentId, SessionConfig, SessionId};

fn names() -> (AgentId, SessionId) {
    ("agent".parse().expect("name"), "s".parse().expect("name"))
}

/// A session whose head has one file.
fn session(root: &Path) -> Home {
    let store = Store::open(root).expect("store");
    let (agent, id) = names();
    let home = store.create(SessionRecord {
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
    });
    let home = home.expect("session");
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
    change.finish().expect("finished");
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
        let trash = home.store.root.join("trash/session");
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
