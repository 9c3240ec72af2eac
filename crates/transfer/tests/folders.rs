//! Folders that are sent and received, again and again.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use brig_transfer::{Bounds, Receiver, Sender, Stamps};
use rustix::fs::{Mode, OFlags};

const BOUNDS: Bounds = Bounds {
    entries: 1000,
    bytes: 1 << 30,
};

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("folder")
}

/// Sends in odd pieces; returns how many bytes it took.
fn transfer(from: &Path, to: &Path, before: Stamps) -> (usize, Stamps) {
    let mut sender = Sender::new(open(from), before).expect("sender");
    let mut receiver = Receiver::exact(open(to), BOUNDS);
    let mut buffer = [0; 1013];
    let mut total = 0;
    loop {
        let count = sender.read(&mut buffer).expect("bytes");
        if count == 0 {
            break;
        }
        total += count;
        receiver.take(&buffer[..count]).expect("taken");
    }
    assert!(receiver.is_complete());
    (total, sender.finish())
}

fn look(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("folder") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("meta");
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).expect("link").display())
            } else if meta.is_dir() {
                folders.push(path.clone());
                format!("folder {:o} {}", meta.mode(), meta.mtime())
            } else {
                let content = fs::read(&path).expect("content");
                let sum = content
                    .iter()
                    .fold(0u64, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
                format!(
                    "{:o} {} {} {} {sum:x}",
                    meta.mode(),
                    meta.mtime(),
                    meta.len(),
                    meta.nlink()
                )
            };
            let name = path
                .strip_prefix(folder)
                .expect("below")
                .display()
                .to_string();
            found.push(format!("{name} {what}"));
        }
    }
    found.sort();
    found
}

#[test]
fn a_folder_arrives_as_it_is_and_only_once() {
    let (from, to) = (
        tempfile::tempdir().expect("a"),
        tempfile::tempdir().expect("b"),
    );
    let (from, to) = (from.path(), to.path());
    fs::create_dir_all(from.join("deep/er/empty")).expect("folders");
    fs::write(from.join("deep/file"), vec![7; 100_000]).expect("file");
    fs::write(from.join("nothing"), "").expect("file");
    fs::hard_link(from.join("deep/file"), from.join("again")).expect("name");
    symlink("/etc/passwd", from.join("link")).expect("link");
    fs::set_permissions(from.join("deep/er"), fs::Permissions::from_mode(0o711)).expect("mode");
    let holes = fs::File::create(from.join("holes")).expect("file");
    holes.set_len(64 << 20).expect("length");
    std::os::unix::fs::FileExt::write_all_at(&holes, b"x", 33 << 20).expect("written");
    fs::write(to.join("old"), "goes").expect("file");
    fs::create_dir_all(to.join("nothing/else")).expect("folders");
    // So that the clock has moved on since the changes.
    std::thread::sleep(std::time::Duration::from_millis(120));

    let (first, stamps) = transfer(from, to, Stamps::default());
    assert!((100_000..300_000).contains(&first), "{first}");
    assert_eq!(look(to), look(from));
    let taken = fs::metadata(to.join("holes")).expect("meta").blocks() * 512;
    assert!(taken < 1 << 20, "holes stay holes: {taken}");

    let (again, stamps) = transfer(from, to, stamps);
    assert!(again < 2000, "nothing is sent twice: {again}");
    assert_eq!(look(to), look(from));

    fs::write(from.join("nothing"), "something").expect("file");
    fs::remove_file(from.join("again")).expect("gone");
    fs::remove_dir_all(from.join("deep/er")).expect("gone");
    let (third, _) = transfer(from, to, stamps);
    assert!(third < 110_000, "{third}");
    assert_eq!(look(to), look(from));
}

fn receive(folder: &Path, bytes: &[u8], bounds: Bounds) -> std::io::Result<bool> {
    let mut receiver = Receiver::exact(open(folder), bounds);
    receiver.take(bytes)?;
    Ok(receiver.is_complete())
}

fn sent(folder: &Path) -> Vec<u8> {
    let mut sender = Sender::new(open(folder), Stamps::default()).expect("sender");
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = sender.read(&mut buffer) {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

/// Writes the stream of a folder with one file, with another name in its place.
fn forged(name: &str, forged: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join(name), "content").expect("file");
    let bytes = sent(folder.path());
    let at = bytes
        .windows(name.len())
        .position(|piece| piece == name.as_bytes())
        .expect("the name");
    let mut bytes = bytes;
    bytes[at..at + name.len()].copy_from_slice(forged.as_bytes());
    bytes
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let outer = tempfile::tempdir().expect("folder");
    let inner = outer.path().join("inner");
    let fresh = || {
        let _ = fs::remove_dir_all(&inner);
        fs::create_dir(&inner).expect("folder");
        symlink(outer.path(), inner.join("out")).expect("link");
    };
    fresh();
    assert!(
        receive(&inner, &forged("some-file", "fine-file"), BOUNDS).expect("control: a name"),
        "control: complete"
    );
    for path in [
        "../victim",
        "/a/victim",
        "out/victi",
        "a/../vict",
        "./victim_",
        "..///////",
    ] {
        fresh();
        let outcome = receive(&inner, &forged(&"s".repeat(path.len()), path), BOUNDS);
        assert!(outcome.is_err(), "{path}");
        assert_eq!(
            fs::read_dir(outer.path()).expect("outer").count(),
            1,
            "{path}"
        );
    }
}

#[test]
fn more_than_the_bounds_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    for number in 0..10 {
        fs::write(folder.path().join(number.to_string()), [b'x'; 100]).expect("file");
    }
    let bytes = sent(folder.path());
    let into = tempfile::tempdir().expect("folder");
    let bound = |entries, bytes| Bounds { entries, bytes };
    assert!(receive(into.path(), &bytes, bound(10, 1000)).expect("control"));
    assert!(receive(into.path(), &bytes, bound(9, 1000)).is_err());
    assert!(receive(into.path(), &bytes, bound(10, 999)).is_err());
}

/// Also right after a path that is one.
#[test]
fn a_path_begins_with_a_name() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["a-good-name", "other-name-"] {
        fs::write(folder.path().join(name), "content").expect("file");
    }
    let mut bytes = sent(folder.path());
    let into = tempfile::tempdir().expect("folder");
    assert!(receive(into.path(), &bytes, BOUNDS).expect("control"));
    let at = bytes.windows(11).position(|piece| piece == b"other-name-");
    bytes[at.expect("the name")] = b'/';
    receive(into.path(), &bytes, BOUNDS).expect_err("no name");
}

/// What was sent before counts as well: it is kept.
#[test]
fn what_is_not_sent_again_is_counted() {
    let (from, to) = (
        tempfile::tempdir().expect("a"),
        tempfile::tempdir().expect("b"),
    );
    let bounds = Bounds {
        entries: 10,
        bytes: 100_000,
    };
    let mut stamps = Stamps::default();
    let mut outcomes = Vec::new();
    for round in 0..3 {
        fs::write(from.path().join(format!("{round}")), [b'x'; 40_000]).expect("file");
        // A file that has just been changed is sent again, in case it changes once more.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut sender = Sender::new(open(from.path()), stamps).expect("sender");
        let mut receiver = Receiver::exact(open(to.path()), bounds);
        let mut buffer = [0; 4096];
        let mut total = 0;
        let outcome = loop {
            match sender.read(&mut buffer).expect("bytes") {
                0 => break Ok(()),
                count => {
                    total += count;
                    if let Err(error) = receiver.take(&buffer[..count]) {
                        break Err(error);
                    }
                }
            }
        };
        assert!(total < 50_000, "only what is new is sent");
        outcomes.push(outcome.is_ok());
        stamps = sender.finish();
    }
    assert_eq!(outcomes, [true, true, false]);
}

#[test]
fn paths_are_bounded_in_all() {
    let from = tempfile::tempdir().expect("folder");
    let mut deep = from.path().to_owned();
    for _ in 0..12 {
        deep = deep.join("d".repeat(250));
        fs::create_dir(&deep).expect("folder");
    }
    // 64 MiB in paths of about 3 KiB.
    for number in 0..25_000 {
        symlink("x", deep.join(number.to_string())).expect("link");
    }
    let bytes = sent(from.path());
    let into = tempfile::tempdir().expect("folder");
    let bounds = Bounds {
        entries: 1_000_000,
        bytes: 0,
    };
    let error = receive(into.path(), &bytes, bounds).expect_err("too much");
    assert!(error.to_string().contains("longer names"), "{error}");
}

#[test]
fn mutated_streams_never_write_elsewhere_and_never_panic() {
    let outer = tempfile::tempdir().expect("folder");
    let source = outer.path().join("source");
    fs::create_dir_all(source.join("a/b")).expect("folders");
    fs::write(source.join("a/file"), "content").expect("file");
    fs::hard_link(source.join("a/file"), source.join("name")).expect("name");
    symlink("../..", source.join("a/link")).expect("link");
    let good = sent(&source);
    let into = outer.path().join("into");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).expect("a small number")
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..=next() % 3 {
            let at = next() % bytes.len();
            bytes[at] = [0, 1, b'.', b'/', 0xff, (next() % 256) as u8][next() % 6];
        }
        fs::create_dir(&into).expect("folder");
        match receive(&into, &bytes, bounds_of_test()) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
        fs::remove_dir_all(&into).expect("removed");
        assert_eq!(fs::read_dir(outer.path()).expect("outer").count(), 1);
    }
    assert!(
        taken > 100 && refused > 100,
        "{taken} taken, {refused} refused"
    );
}

fn bounds_of_test() -> Bounds {
    Bounds {
        entries: 20,
        bytes: 10_000,
    }
}
