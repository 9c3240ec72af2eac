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
        loop {
            match sender.read(&mut buffer) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
}

/// As it is kept outside: an ordinary folder whose owner may always read and write.
fn keep(sent: &[u8], kept: &Path) {
    folder(kept, USER, 0o755);
    as_user(|| {
        let mut receiver = Receiver::exact(open(kept), BOUNDS);
        receiver.take(sent).expect("taken");
        assert!(receiver.is_complete());
    });
    let mut folders = vec![kept.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("folder") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("meta");
            let mode = |more: u32| Permissions::from_mode(meta.mode() & 0o777 | more);
            if meta.is_dir() {
                fs::set_permissions(&path, mode(0o700)).expect("mode");
                folders.push(path);
            } else if meta.is_file() {
                fs::set_permissions(&path, mode(0o600)).expect("mode");
            }
        }
    }
}

fn put_back(kept: &Path, root: &Path) {
    as_user(|| {
        let mut sender = Sender::new(open(kept), Stamps::default()).expect("sender");
        let mut receiver = Receiver::within(scope(), open(root), BOUNDS);
        let mut buffer = [0; 1013];
        while let count @ 1.. = sender.read(&mut buffer).expect("bytes") {
            receiver.take(&buffer[..count]).expect("taken");
        }
        assert!(receiver.is_complete());
    });
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
        ("own/set", USER, 0o2775),
        ("own/shut", USER, 0o755),
        // Can be listed, and nothing else.
        ("listed", 0, 0o744),
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
        ("own/open", 0, 0o666),
        ("own/alike", 0, 0o644),
        ("own/shut/of-root", 0, 0o444),
        ("sticky/read-only", 0, 0o444),
        ("listed/file", 0, 0o644),
    ] {
        write(&root.join(name), "image", owner, mode);
        // As old as files of an image are.
        let file = File::open(root.join(name)).expect("file");
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        file.set_modified(old).expect("time");
    }
    symlink("of-root", root.join("own/shut/link")).expect("link");
    fs::set_permissions(root.join("own/shut"), Permissions::from_mode(0o555)).expect("mode");
    // Deeper than anything that is kept, and nobody's business.
    let mut deep = root.join("roots");
    for _ in 0..140 {
        deep = deep.join("d");
        fs::create_dir(&deep).expect("folder");
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
            // What is kept outside can always be written by its owner.
            let mode = mode | if owner == USER { 0o600 } else { 0 };
            let mode = mode
                | if owner == USER && meta.is_dir() {
                    0o700
                } else {
                    0
                };
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
        fs::hard_link(old.join("roots/own"), old.join("own/before")).expect("name");
        // Of the same size and time as the one it takes the place of.
        let alike = old.join("own/alike");
        let time = fs::metadata(&alike)
            .expect("meta")
            .modified()
            .expect("time");
        fs::remove_file(&alike).expect("removed");
        fs::write(&alike, "IMAGE").expect("file");
        fs::set_permissions(&alike, Permissions::from_mode(0o644)).expect("mode");
        let file = File::options().write(true).open(&alike).expect("file");
        file.set_modified(time).expect("time");
        fs::write(old.join("roots/file"), "no").expect_err("control: of root");
        fs::remove_file(old.join("sticky/roots")).expect_err("control: of root");
    });
    keep(&send(&old), &kept);
    let names: Vec<String> = look(&kept);
    for absent in [
        "closed",
        "listed",
        "mounted",
        "hidden",
        "roots/file",
        "gone",
    ] {
        let of_others =
            |line: &String| line.starts_with(absent) || line.contains(&format!("/{absent} "));
        assert!(!names.iter().any(of_others), "{absent}: {names:?}");
    }
    put_back(&kept, &new);
    assert_ne!(look(&new), before, "control");
    // Other mounts are none of its business.
    for mounted in ["own/mounted/new", "mounted/new"] {
        fs::remove_file(old.join(mounted)).expect("removed");
    }
    assert_eq!(look(&new), look(&old));
}

/// What was written by somebody who is not believed leads to no other mount.
#[test]
fn nothing_is_put_where_something_else_is_mounted() {
    let outer = tempfile::tempdir().expect("folder");
    let (kept, root) = (outer.path().join("kept"), outer.path().join("root"));
    for folder in ["kept", "kept/mounted", "kept/free", "root", "root/mounted"] {
        fs::create_dir(outer.path().join(folder)).expect("folder");
    }
    fs::write(kept.join("free/file"), "file").expect("file");
    let receive = || {
        let mut sender = Sender::new(open(&kept), Stamps::default()).expect("sender");
        let mut receiver = Receiver::within(scope(), open(&root), BOUNDS);
        let mut buffer = [0; 1013];
        while let count @ 1.. = sender.read(&mut buffer).expect("bytes") {
            receiver.take(&buffer[..count])?;
        }
        std::io::Result::Ok(())
    };
    receive().expect_err("a mount");
    fs::remove_dir(kept.join("mounted")).expect("removed");
    receive().expect("control");
}
