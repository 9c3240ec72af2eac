//! Folders that are sent and received, again and again.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use brig_linux::access::AccessTimes;
use brig_transfer::{Bounds, Compare, Evidence, Receiver, Sender, Stamps};
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
    transfer_comparing(from, to, before, Compare::Nothing)
}

fn transfer_comparing(from: &Path, to: &Path, before: Stamps, compare: Compare) -> (usize, Stamps) {
    let sender = Sender::new(open(from), before).expect("sender");
    let evidence = Evidence {
        compare,
        ..Evidence::default()
    };
    let mut sender = sender.with_evidence(evidence);
    let mut receiver = Receiver::exact(open(to), BOUNDS);
    let mut buffer = [0; 1013];
    let mut total = 0;
    loop {
        let count = match sender.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            count => count.expect("bytes"),
        };
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

/// Writes through a mapping, which need not change any time.
fn write_mapped(path: &Path, text: &str) {
    write_mapped_with(path, text, "os.O_RDWR");
}

fn write_mapped_with(path: &Path, text: &str, flags: &str) {
    let before = fs::metadata(path).expect("meta");
    let script = format!(
        "import mmap,os,sys; f=os.open(sys.argv[1],{flags}); m=mmap.mmap(f,0); m[0]; \
         m[:len(sys.argv[2])]=sys.argv[2].encode()"
    );
    let python = std::process::Command::new("python3")
        .args(["-c", &script])
        .args([path.as_os_str(), text.as_ref()])
        .status();
    assert!(python.expect("python3").success());
    let after = fs::metadata(path).expect("meta");
    let times = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec(), meta.mtime_nsec());
    assert_eq!(
        times(&before),
        times(&after),
        "control: no time has changed"
    );
}

#[test]
fn a_write_through_a_mapping_is_sent_if_contents_are_compared_and_only_then() {
    let from = tempfile::tempdir_in("/dev/shm").expect("a");
    let to = tempfile::tempdir().expect("b");
    let (from, to) = (from.path(), to.path());
    let file = from.join("file");
    fs::write(&file, "one".repeat(50_000)).expect("file");
    fs::write(from.join("other"), vec![7; 100_000]).expect("file");
    let holes = fs::File::create(from.join("holes")).expect("file");
    holes.set_len(64 << 20).expect("length");
    std::thread::sleep(std::time::Duration::from_millis(120));
    let received = || fs::read_to_string(to.join("file")).expect("file");
    let (_, stamps) = transfer(from, to, Stamps::default());

    write_mapped(&file, "two");
    let (sent, stamps) = transfer(from, to, stamps);
    assert!(
        sent < 2000 && received().starts_with("one"),
        "control: times don't tell"
    );
    let (sent, stamps) = transfer_comparing(from, to, stamps, Compare::Everything);
    assert!(
        (150_000..160_000).contains(&sent),
        "only what changed: {sent}"
    );
    assert!(received().starts_with("two"));
    let (sent, mut stamps) = transfer_comparing(from, to, stamps, Compare::Everything);
    assert!(sent < 2000, "nothing has changed: {sent}");
    for text in ["one", "two", "six"] {
        write_mapped(&file, text);
        (_, stamps) = transfer_comparing(from, to, stamps, Compare::Everything);
        assert!(received().starts_with(text));
        (_, stamps) = transfer(from, to, stamps);
        assert!(received().starts_with(text));
    }
}

#[test]
fn only_what_was_accessed_is_read() {
    let from = tempfile::tempdir_in("/dev/shm").expect("a");
    let to = tempfile::tempdir().expect("b");
    let (from, to) = (from.path(), to.path());
    let names = ["seen", "unseen"].map(|name| from.join(name));
    for name in &names {
        fs::write(name, "one".repeat(50_000)).expect("file");
    }
    let settle = || std::thread::sleep(std::time::Duration::from_millis(120));
    let times = AccessTimes::of(open(from)).expect("times");
    let accessed = Compare::Accessed(times);
    let received = |name: &str| fs::read(to.join(name)).expect("file")[..3].to_vec();
    settle();
    let (_, stamps) = transfer(from, to, Stamps::default());

    write_mapped(&names[0], "two");
    // What no program can do in a sandbox: the filter refuses it.
    write_mapped_with(&names[1], "two", "os.O_RDWR | os.O_NOATIME");
    let (_, stamps) = transfer_comparing(from, to, stamps, accessed);
    assert_eq!(received("seen"), b"two");
    assert_eq!(
        received("unseen"),
        b"one",
        "control: it was not read, as times of access do not tell"
    );
    // An access and a change within the same tick of the clock as the last look.
    for text in ["six", "ten", "one"] {
        fs::read(&names[0]).expect("an access");
        let (_, stamps) = transfer_comparing(from, to, Stamps::default(), accessed);
        write_mapped(&names[0], text);
        transfer_comparing(from, to, stamps, accessed);
        assert_eq!(received("seen"), text.as_bytes());
    }
    let (_, stamps) = transfer_comparing(from, to, stamps, Compare::Everything);
    assert_eq!(received("unseen"), b"two");
    settle();
    // Where nothing can be told, everything is read.
    write_mapped_with(&names[1], "six", "os.O_RDWR | os.O_NOATIME");
    let unknown = Compare::Accessed(AccessTimes::Unknown);
    transfer_comparing(from, to, stamps, unknown);
    assert_eq!(received("unseen"), b"six");
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
            bytes[at] = [
                0,
                1,
                b'.',
                b'/',
                0xff,
                u8::try_from(next() % 256).expect("a byte"),
            ][next() % 6];
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

#[test]
fn what_was_received_is_not_sent_back() {
    let folder = || tempfile::tempdir().expect("folder");
    let (from, to, back) = (folder(), folder(), folder());
    let bytes = |seed: u32| -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let states = std::iter::successors(Some(seed), next);
        states
            .map(|state| state.to_le_bytes()[3])
            .take(300_000)
            .collect()
    };
    fs::write(from.path().join("large"), bytes(1)).expect("write");
    fs::write(from.path().join("changed"), bytes(2)).expect("write");
    // With holes, at the beginning and between.
    let mut holes = vec![0; 100_000];
    holes.extend(bytes(3));
    holes.extend(vec![0; 200_000]);
    holes.extend(bytes(4));
    fs::write(from.path().join("holes"), &holes).expect("write");
    let receiver = Receiver::adding(open(to.path()), BOUNDS);
    let (all, received) = pass(Sender::new(open(from.path()), Stamps::default()), receiver);
    assert!(all > 1_000_000, "{all}");
    // The other side has it all: what it is made of is linked.
    for name in ["large", "changed", "holes"] {
        fs::hard_link(from.path().join(name), back.path().join(name)).expect("link");
    }
    // The same size and time, and other content.
    let changed = to.path().join("changed");
    let time = fs::metadata(&changed)
        .and_then(|meta| meta.modified())
        .expect("time");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&changed)
        .expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, b"xyz", 1000).expect("write");
    file.set_modified(time).expect("time");
    let sender = Sender::new(open(to.path()), received).map(|sender| {
        sender.with_evidence(Evidence {
            compare: Compare::Everything,
            ..Evidence::default()
        })
    });
    let (some, _) = pass(sender, Receiver::exact(open(back.path()), BOUNDS));
    assert!((300_000..320_000).contains(&some), "{some}");
    for name in ["large", "changed", "holes"] {
        let read = |folder: &Path| fs::read(folder.join(name)).expect("content");
        assert!(read(back.path()) == read(to.path()), "{name}");
    }
    // A linked file was replaced and not written to.
    assert!(fs::read(from.path().join("changed")).expect("content") == bytes(2));
}

/// Everything from one to the other: how many bytes, and what was received.
fn pass(sender: std::io::Result<Sender>, mut receiver: Receiver) -> (usize, Stamps) {
    let (mut sender, mut total) = (sender.expect("sender"), 0);
    let mut buffer = [0; 1013];
    loop {
        match sender.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
            Ok(0) => break,
            Ok(count) => {
                total += count;
                receiver.take(&buffer[..count]).expect("taken");
            }
        }
    }
    assert!(receiver.is_complete());
    (total, receiver.finish().stamps)
}
