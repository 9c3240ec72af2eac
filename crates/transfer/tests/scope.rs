//! A root that belongs to somebody else, sent and received by a user who may change some of it.

use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use brig_transfer::{Bounds, Receiver, Scope, Sender, Stamps};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

const USER: u32 = 65534;
const BOUNDS: Bounds = Bounds {
    entries: 1000,
    bytes: 1 << 20,
};

/// As that user, who has no rights but his own. Only the thread changes.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let change = || {
        let gid = rustix::fs::Gid::from_raw(USER);
        let uid = rustix::fs::Uid::from_raw(USER);
        set_thread_groups(&[]).expect("groups");
        set_thread_res_gid(gid, gid, gid).expect("group");
        set_thread_res_uid(uid, uid, uid).expect("user");
        work()
    };
    std::thread::scope(|scope| scope.spawn(change).join().expect("a thread"))
}

fn open(path: &Path) -> OwnedFd {
    File::open(path).expect("folder").into()
}

fn scope() -> Scope {
    Scope::around([b"mounted".to_vec(), b"own/mounted".to_vec()])
}

fn send(from: &Path) -> Vec<u8> {
    as_user(|| {
        let mut sender = Sender::within(scope(), open(from), Stamps::default()).expect("sender");
        let mut all = Vec::new();
        let mut buffer = [0; 1013];
        while let count @ 1.. = sender.read(&mut buffer).expect("bytes") {
            all.extend_from_slice(&buffer[..count]);
        }
        all
    })
}

fn write(path: &Path, content: &str, owner: u32, mode: u32) {
    fs::write(path, content).expect("file");
    chown(path, Some(owner), Some(owner)).expect("owner");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("mode");
}

fn folder(path: &Path, owner: u32, mode: u32) {
    fs::create_dir(path).expect("folder");
    chown(path, Some(owner), Some(owner)).expect("owner");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("mode");
}

fn image(root: &Path) {
    folder(root, 0, 0o755);
    for (name, owner, mode) in [
        ("roots", 0, 0o755),
        ("closed", 0, 0o700),
        ("sticky", 0, 0o1777),
        ("own", USER, 0o755),
        ("mounted", USER, 0o755),
        ("own/mounted", USER, 0o755),
        ("own/roots", 0, 0o755),
    ] {
        folder(&root.join(name), owner, mode);
    }
    for (name, owner, mode) in [
        ("roots/file", 0, 0o644),
        ("roots/open", 0, 0o666),
        ("roots/own", USER, 0o444),
        ("closed/file", 0, 0o644),
        ("sticky/roots", 0, 0o644),
        ("own/gone", USER, 0o644),
        ("own/gone-of-root", 0, 0o644),
        ("own/of-root", 0, 0o644),
        ("own/hidden", 0, 0o600),
        ("own/roots/file", 0, 0o644),
        ("own/mounted/file", USER, 0o644),
        ("mounted/file", USER, 0o644),
    ] {
        write(&root.join(name), "image", owner, mode);
        // As old as files of an image are.
        let file = File::open(root.join(name)).expect("file");
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        file.set_modified(old).expect("time");
    }
}

fn look(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("folder") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("meta");
            let what = if meta.is_symlink() {
                fs::read_link(&path).expect("link").display().to_string()
            } else if meta.is_dir() {
                folders.push(path.clone());
                "folder".into()
            } else {
                fs::read_to_string(&path).expect("content")
            };
            let name = path.strip_prefix(root).expect("below").display();
            let (mode, owner) = (meta.mode(), meta.uid());
            found.push(format!("{name} {mode:o} {owner} {what}"));
        }
    }
    found.sort();
    found
}

#[test]
fn others_keep_what_is_theirs() {
    if !rustix::process::geteuid().is_root() {
        return brig_testing::skip("a root of somebody else", "only root can be two users");
    }
    let outer = tempfile::tempdir().expect("folder");
    fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).expect("mode");
    let at = |name: &str| outer.path().join(name);
    let (old, new, kept) = (at("old"), at("new"), at("kept"));
    image(&old);
    image(&new);
    let before = look(&new);
    as_user(|| {
        fs::remove_file(old.join("own/gone")).expect("removed");
        fs::remove_file(old.join("own/gone-of-root")).expect("removed");
        fs::write(old.join("roots/open"), "changed").expect("changed");
        let own = old.join("roots/own");
        fs::set_permissions(&own, Permissions::from_mode(0o640)).expect("mode");
        fs::write(&own, "changed").expect("changed");
        fs::create_dir(old.join("own/new")).expect("folder");
        fs::write(old.join("own/new/file"), "new").expect("file");
        fs::hard_link(old.join("own/new/file"), old.join("own/name")).expect("name");
        symlink("new/file", old.join("own/link")).expect("link");
        fs::write(old.join("sticky/new"), "new").expect("file");
        fs::write(old.join("own/mounted/new"), "new").expect("file");
        fs::write(old.join("mounted/new"), "new").expect("file");
        fs::write(old.join("roots/file"), "no").expect_err("control: of root");
        fs::remove_file(old.join("sticky/roots")).expect_err("control: of root");
    });
    // What the outside keeps is an ordinary folder.
    folder(&kept, USER, 0o755);
    let sent = send(&old);
    as_user(|| {
        let mut receiver = Receiver::exact(open(&kept), BOUNDS);
        receiver.take(&sent).expect("taken");
        assert!(receiver.is_complete());
    });
    let names: Vec<String> = look(&kept);
    for absent in ["closed", "mounted", "hidden", "roots/file", "gone"] {
        let of_others =
            |line: &String| line.starts_with(absent) || line.contains(&format!("/{absent} "));
        assert!(!names.iter().any(of_others), "{absent}: {names:?}");
    }
    as_user(|| {
        let mut sender = Sender::new(open(&kept), Stamps::default()).expect("sender");
        let mut receiver = Receiver::within(scope(), open(&new), BOUNDS);
        let mut buffer = [0; 1013];
        while let count @ 1.. = sender.read(&mut buffer).expect("bytes") {
            receiver.take(&buffer[..count]).expect("taken");
        }
        assert!(receiver.is_complete());
    });
    assert_ne!(look(&new), before, "control");
    // Other mounts are none of its business.
    for mounted in ["own/mounted/new", "mounted/new"] {
        fs::remove_file(old.join(mounted)).expect("removed");
    }
    assert_eq!(look(&new), look(&old));
}
