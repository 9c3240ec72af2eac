use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use brig_linux::access::{AccessTimes, now};
use rustix::fs::{CWD, FileType, Mode, OFlags, XattrFlags, fsetxattr, mknodat};
use tempfile::TempDir;

use super::*;

/// A folder of the sandbox, and where it is mirrored to.
struct Pair {
    _folder: TempDir,
    from: PathBuf,
    into: PathBuf,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let (from, into) = (folder.path().join("upper"), folder.path().join("head"));
        fs::create_dir(&from).expect("folder");
        fs::create_dir(&into).expect("folder");
        Self {
            _folder: folder,
            from,
            into,
        }
    }

    fn mirror(&self, overlay: bool) -> io::Result<MirrorStats> {
        mirror(
            File::open(&self.from).expect("open").as_fd(),
            &self.into,
            overlay,
            LIMIT,
            Unchanged::Time,
            None,
        )
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.from.join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, text).expect("write");
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.into.join(name)).ok()
    }
}

/// More than any of these tests saves.
const LIMIT: u64 = 1 << 30;

#[test]
fn more_than_the_limit_is_not_saved() {
    let pair = Pair::new();
    pair.write("a", "12345");
    pair.write("b", "12345");
    let from = File::open(&pair.from).expect("open");
    assert!(mirror(from.as_fd(), &pair.into, false, 9, Unchanged::Time, None).is_err());
    assert!(mirror(from.as_fd(), &pair.into, false, 10, Unchanged::Time, None).is_ok());
}

#[test]
fn no_more_than_the_limit_is_ever_written() {
    let folder = tempfile::tempdir().expect("folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, vec![1; 1 << 20]).expect("write");
    let from = File::open(from).expect("open");
    let to = File::create(to).expect("create");
    let written = |room| copy::copy(&from, 1 << 20, &to, room).expect("copied");
    assert_eq!(written((1 << 20) - 1), None);
    assert!(to.metadata().expect("metadata").len() < 1 << 20);
    assert_eq!(written(1 << 20), Some(1 << 20));
}

#[test]
fn what_was_replaced_is_removed_before_much_is_saved_again() {
    let pair = Pair::new();
    let next = pair.into.with_extension(NEXT);
    fs::create_dir(&next).expect("folder");
    let mut accesses = Accesses::default();
    let mut save = |limit| {
        let from = File::open(&pair.from).expect("open");
        let from = from.as_fd();
        mirror_seen(
            from,
            &next,
            false,
            limit,
            Unchanged::Time,
            None,
            &mut accesses,
        )?;
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, &next, CWD, &pair.into, exchange)?;
        Ok::<_, io::Error>(())
    };
    pair.write("same/file", "same");
    fs::write(pair.from.join("a"), vec![1; 5 << 20]).expect("write");
    save(LIMIT).expect("saved");
    pair.write("gone/below", "gone");
    fs::write(pair.from.join("b"), vec![2; 5 << 20]).expect("write");
    save(LIMIT).expect("saved");
    fs::remove_dir_all(pair.from.join("gone")).expect("removed");
    fs::write(pair.from.join("b"), vec![3; 5 << 20]).expect("write");
    save(LIMIT).expect("saved");
    // The first step of the next save, which does not get further.
    assert!(next.join("gone/below").exists(), "control");
    assert_eq!(fs::read(next.join("b")).expect("read")[0], 2, "control");
    fs::write(pair.from.join("b"), vec![4; 5 << 20]).expect("write");
    save(1).expect_err("more than the limit");
    assert!(!next.join("gone").exists() && !next.join("b").exists());
    assert!(next.join("a").exists() && next.join("same/file").exists());
    assert_eq!(fs::read(pair.into.join("b")).expect("read")[0], 3);
}

/// Until a change is old enough that a copy of it counts as up to date.
fn settle() {
    sleep(Duration::from_millis(60));
}

fn whiteout(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).expect("whiteout");
}

fn opaque(path: &Path) {
    let folder = File::open(path).expect("open");
    fsetxattr(&folder, c"user.overlay.opaque", b"y", XattrFlags::empty()).expect("attribute");
}

fn is_whiteout(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| meta.rdev() == 0 && meta.mode() & 0o170000 == 0o020000)
}

#[test]
fn only_what_changed_is_copied() {
    let pair = Pair::new();
    pair.write("a", "one");
    pair.write("b/c", "two");
    settle();
    assert_eq!(pair.mirror(false).expect("mirror").copied, 2);
    assert_eq!(pair.mirror(false).expect("mirror").copied, 0);
    assert_eq!(pair.read("b/c").as_deref(), Some("two"));
    // Reading it in the ordinary way touches its time of access, so it is copied once more.
    pair.mirror(false).expect("mirror");
    pair.write("a", "three");
    settle();
    let stats = pair.mirror(false).expect("mirror");
    assert_eq!((stats.copied, stats.copied_bytes, stats.entries), (1, 5, 3));
    assert_eq!(pair.read("a").as_deref(), Some("three"));
}

#[test]
fn only_what_may_have_changed_is_opened() {
    let pair = Pair::new();
    pair.write("a", "one");
    pair.write("b/c", "two");
    settle();
    assert_eq!(pair.mirror(false).expect("mirror").opened, 2);
    assert_eq!(pair.mirror(false).expect("mirror").opened, 0);
    // Beside what was saved last, as sessions do it: the two take turns.
    let next = pair.into.with_extension(NEXT);
    fs::create_dir(&next).expect("folder");
    let turn = || {
        let from = File::open(&pair.from).expect("open");
        let stats = mirror(from.as_fd(), &next, false, LIMIT, Unchanged::Time, None);
        let other = pair.into.with_extension("other");
        fs::rename(&pair.into, &other).expect("rename");
        fs::rename(&next, &pair.into).expect("rename");
        fs::rename(&other, &next).expect("rename");
        stats.expect("mirror")
    };
    assert_eq!(turn().opened, 2, "nothing is there yet");
    assert_eq!(turn().opened, 0);
    pair.write("b/c", "owt");
    settle();
    let stats = turn();
    assert_eq!((stats.opened, stats.copied), (1, 1));
    // The other one has the file as it was two turns ago.
    let stats = turn();
    assert_eq!((stats.opened, stats.copied), (1, 0));
    assert_eq!(turn().opened, 0);
    // What looks as it did is opened where writes need not change a time.
    let from = File::open(&pair.from).expect("open");
    let stats = mirror(from.as_fd(), &next, false, LIMIT, Unchanged::Content, None);
    assert_eq!(stats.expect("mirror").opened, 2);
    assert_eq!(pair.read("b/c").as_deref(), Some("owt"));
}

#[test]
fn a_change_that_hides_behind_the_same_size_and_time_is_seen() {
    let pair = Pair::new();
    pair.write("a", "one");
    settle();
    pair.mirror(false).expect("mirror");
    let path = pair.from.join("a");
    let modified = path
        .metadata()
        .and_then(|meta| meta.modified())
        .expect("time");
    fs::write(&path, "two").expect("write");
    File::options()
        .write(true)
        .open(&path)
        .and_then(|f| f.set_modified(modified))
        .expect("time");
    assert_eq!(pair.mirror(false).expect("mirror").copied, 1);
    assert_eq!(pair.read("a").as_deref(), Some("two"));
}

/// Writes through a mapping that was made before, which changes no time.
fn write_mapped(path: &Path, text: &[u8]) {
    write_mapped_with(path, text, OFlags::empty());
}

fn write_mapped_with(path: &Path, text: &[u8], flags: OFlags) {
    let before = path.metadata().expect("meta");
    // No page is mapped for writing by the first access, so nothing tells of the second.
    let script = "import mmap,os,sys; f=os.open(sys.argv[1],os.O_RDWR | int(sys.argv[3])); m=mmap.mmap(f,0); \
                  m[0]; m[:len(sys.argv[2])]=sys.argv[2].encode()";
    let text = std::str::from_utf8(text).expect("text");
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .args([path.as_os_str(), OsStr::new(text)])
        .arg(flags.bits().to_string())
        .status()
        .expect("python3");
    assert!(status.success());
    let after = path.metadata().expect("meta");
    let times = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec(), meta.mtime_nsec());
    assert_eq!(
        times(&before),
        times(&after),
        "control: no time has changed"
    );
}

#[test]
fn only_what_was_accessed_is_opened() {
    let memory = tempfile::tempdir_in("/dev/shm").expect("folder");
    let mut pair = Pair::new();
    pair.from = memory.path().join("upper");
    fs::create_dir(&pair.from).expect("folder");
    let from = File::open(&pair.from).expect("open");
    let times = AccessTimes::of(&from).expect("times");
    for name in ["seen", "unseen"] {
        pair.write(name, "one");
    }
    settle();
    let mut seen = Accesses::new(times);
    let mut save = |unchanged| {
        let (from, into) = (from.as_fd(), &pair.into);
        mirror_seen(from, into, false, LIMIT, unchanged, None, &mut seen).expect("mirror")
    };
    let later = || Unchanged::Access(now());
    assert_eq!(save(later()).opened, 2, "nothing is known");
    assert_eq!(save(later()).opened, 0);
    write_mapped(&pair.from.join("seen"), b"two");
    // What no program can do in a sandbox: the filter refuses it.
    write_mapped_with(&pair.from.join("unseen"), b"two", OFlags::NOATIME);
    let stats = save(later());
    assert_eq!((stats.opened, stats.copied), (1, 1));
    let stats = save(Unchanged::Content);
    assert_eq!(
        (stats.opened, stats.copied),
        (2, 1),
        "control: it was not read"
    );
    // What happens in the tick of the clock of the last access may be unseen.
    settle();
    assert_eq!(save(Unchanged::Access((1, 0))).opened, 2);
}

#[test]
fn a_write_through_a_mapping_is_seen_by_content_and_only_so() {
    let memory = tempfile::tempdir_in("/dev/shm").expect("folder");
    let mut pair = Pair::new();
    pair.from = memory.path().join("upper");
    fs::create_dir(&pair.from).expect("folder");
    let head = std::mem::replace(&mut pair.into, pair.from.with_file_name("head.next"));
    let head_name = pair.from.with_file_name("head");
    fs::remove_dir(head).expect("folder");
    fs::create_dir(&head_name).expect("folder");
    fs::create_dir(&pair.into).expect("folder");
    pair.write("a", "one");
    pair.write("kept", "kept");
    settle();
    let save = |unchanged| {
        let from = File::open(&pair.from).expect("open");
        let stats = mirror(from.as_fd(), &pair.into, true, LIMIT, unchanged, None).expect("mirror");
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, &pair.into, CWD, &head_name, flags).expect("exchange");
        // Without touching its time of access.
        let folder = File::open(&head_name).expect("open").into();
        let saved = digest::open_file(&folder, c"a").and_then(io::read_to_string);
        (saved.expect("saved"), stats.copied)
    };
    assert_eq!(save(Unchanged::Time), ("one".into(), 2));
    write_mapped(&pair.from.join("a"), b"two");
    assert_eq!(
        save(Unchanged::Time),
        ("one".into(), 0),
        "control: times don't tell"
    );
    assert_eq!(save(Unchanged::Content), ("two".into(), 1));
    // Two saves ago is what is there when the next begins, with the same time.
    assert_eq!(save(Unchanged::Time), ("two".into(), 0));
    assert_eq!(save(Unchanged::Time), ("two".into(), 0));
    for text in ["one", "two", "one", "six"] {
        write_mapped(&pair.from.join("a"), text.as_bytes());
        assert_eq!(save(Unchanged::Content), (text.into(), 1));
        assert_eq!(save(Unchanged::Time), (text.into(), 0));
    }
}

#[test]
fn files_are_compared_wherever_they_have_holes() {
    let folder = tempfile::tempdir().expect("folder");
    let size = 3 << 20;
    let make = |name: &str, data: &[(u64, &[u8])]| {
        let path = folder.path().join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.expect("file");
        file.set_len(size).expect("length");
        for (at, bytes) in data {
            file.write_all_at(bytes, *at).expect("write");
        }
        file
    };
    let zeros = vec![0; 1 << 20];
    let sparse = make("sparse", &[(1 << 20, b"x")]);
    let written = make(
        "written",
        &[(0, &zeros), (1 << 20, b"x"), (2 << 20, &zeros)],
    );
    let other = make("other", &[(0, &zeros), (1 << 20, b"x"), (size - 1, b"y")]);
    let empty = make("empty", &[]);
    let same = |a, b| {
        copy::Comparison::default()
            .same(a, b, size)
            .expect("compared")
    };
    assert!(same(&sparse, &written) && same(&written, &sparse));
    assert!(same(&empty, &empty) && same(&other, &other));
    for (a, b) in [
        (&sparse, &other),
        (&written, &other),
        (&sparse, &empty),
        (&other, &empty),
    ] {
        assert!(!same(a, b) && !same(b, a));
    }
    empty.set_len(size - 1).expect("length");
    assert!(
        !same(&sparse, &empty) && !same(&empty, &sparse),
        "it became shorter"
    );
}

#[test]
fn what_is_compared_is_bounded() {
    let mut pair = Pair::new();
    pair.write("a", &"x".repeat(1000));
    let saved = std::mem::replace(&mut pair.into, pair.from.with_file_name("head.next"));
    fs::create_dir(&pair.into).expect("folder");
    let from = File::open(&pair.from).expect("open");
    let save =
        |into: &Path, limit| mirror(from.as_fd(), into, false, limit, Unchanged::Content, None);
    save(&saved, LIMIT).expect("mirror");
    let stats = save(&pair.into, 250).expect("mirror");
    assert_eq!((stats.copied, stats.compared_bytes), (0, 1000));
    assert!(save(&pair.into, 249).is_err());
}

#[test]
fn a_change_in_the_same_tick_is_seen() {
    let pair = Pair::new();
    for round in 0..50 {
        pair.write("a", &format!("{round:03}"));
        pair.mirror(false).expect("mirror");
        assert_eq!(pair.read("a"), Some(format!("{round:03}")));
    }
}

#[test]
fn names_that_went_away_go_away() {
    let pair = Pair::new();
    pair.write("keep", "x");
    pair.write("gone/deep/file", "x");
    pair.mirror(false).expect("mirror");
    fs::remove_dir_all(pair.from.join("gone")).expect("remove");
    assert_eq!(pair.mirror(false).expect("mirror").removed, 1);
    assert_eq!(pair.read("keep").as_deref(), Some("x"));
    assert!(!pair.into.join("gone").exists());
}

#[test]
fn a_name_may_become_something_else() {
    let pair = Pair::new();
    let [file, folder, link] = ["file", "folder", "link"].map(|name| pair.from.join(name));
    pair.write("file", "x");
    pair.write("folder/x", "x");
    symlink("file", &link).expect("link");
    pair.mirror(false).expect("mirror");

    fs::remove_file(&file).expect("remove");
    fs::remove_dir_all(&folder).expect("remove");
    fs::remove_file(&link).expect("remove");
    pair.write("file/x", "1");
    symlink("elsewhere", &folder).expect("link");
    pair.write("link", "2");
    pair.mirror(false).expect("mirror");
    assert_eq!(pair.read("file/x").as_deref(), Some("1"));
    assert_eq!(
        fs::read_link(pair.into.join("folder")).expect("link"),
        Path::new("elsewhere")
    );
    assert_eq!(pair.read("link").as_deref(), Some("2"));
    assert!(
        pair.into
            .join("link")
            .symlink_metadata()
            .expect("meta")
            .is_file()
    );
}

#[test]
fn what_was_saved_before_is_linked() {
    let mut pair = Pair::new();
    pair.write("same/file", "one");
    pair.write("changed", "one");
    settle();
    pair.mirror(false).expect("mirror");
    pair.write("changed", "two");
    settle();
    let saved = std::mem::replace(&mut pair.into, pair.from.with_file_name("head.next"));
    fs::create_dir(&pair.into).expect("folder");
    assert_eq!(pair.mirror(false).expect("mirror").copied, 1);
    let inode = |path: PathBuf| path.metadata().expect("meta").ino();
    assert_eq!(
        inode(pair.into.join("same/file")),
        inode(saved.join("same/file"))
    );
    assert_eq!(pair.read("changed").as_deref(), Some("two"));
    assert_eq!(
        fs::read_to_string(saved.join("changed")).expect("read"),
        "one"
    );
}

/// The same file again, as in a new instance.
fn renew(path: &Path, text: &str) {
    let modified = path.metadata().and_then(|meta| meta.modified());
    fs::remove_file(path).expect("remove");
    fs::write(path, text).expect("write");
    let file = File::options().write(true).open(path).expect("open");
    file.set_modified(modified.expect("time")).expect("time");
}

#[test]
fn what_was_saved_before_is_linked_if_it_holds_the_same() {
    let mut pair = Pair::new();
    for name in ["same", "changed", "longer"] {
        pair.write(name, "one");
    }
    settle();
    pair.mirror(false).expect("mirror");
    renew(&pair.from.join("same"), "one");
    renew(&pair.from.join("changed"), "two");
    renew(&pair.from.join("longer"), "one\0");
    settle();
    let saved = std::mem::replace(&mut pair.into, pair.from.with_file_name("head.next"));
    fs::create_dir(&pair.into).expect("folder");
    assert_eq!(pair.mirror(false).expect("mirror").copied, 2);
    let inode = |path: PathBuf| path.metadata().expect("meta").ino();
    assert_eq!(inode(pair.into.join("same")), inode(saved.join("same")));

    // Both places hold the same file already.
    renew(&pair.from.join("same"), "one");
    pair.write("new", "three");
    settle();
    assert_eq!(pair.mirror(false).expect("mirror").copied, 1);
    assert_eq!(inode(pair.into.join("same")), inode(saved.join("same")));
    assert_eq!(pair.read("changed").as_deref(), Some("two"));
    assert_eq!(pair.read("longer").as_deref(), Some("one\0"));
}

#[test]
fn holes_and_zeros_hold_the_same_and_nothing_else_does() {
    let folder = tempfile::tempdir().expect("folder");
    let make = |name: &str, pieces: &[(u64, &[u8])]| {
        let mut file = File::options();
        file.read(true).write(true).create(true).truncate(true);
        let file = file.open(folder.path().join(name)).expect("file");
        file.set_len(1 << 20).expect("length");
        for (at, piece) in pieces {
            file.write_all_at(piece, *at).expect("write");
        }
        file
    };
    let (hole, zeros) = (make("a", &[]), make("b", &[(65536, &[0; 9000])]));
    let (early, late) = (make("c", &[(5, b"x")]), make("d", &[(900_000, b"x")]));
    let same = |a, b| {
        copy::Comparison::default()
            .same(a, b, 1 << 20)
            .expect("read")
    };
    assert!(same(&hole, &zeros) && same(&zeros, &hole) && same(&late, &late));
    for (a, b) in [(&hole, &early), (&zeros, &late), (&early, &late)] {
        assert!(!same(a, b) && !same(b, a));
    }
}

#[test]
fn links_are_copied_never_followed() {
    let pair = Pair::new();
    symlink("/etc/passwd", pair.from.join("file")).expect("link");
    symlink("/etc", pair.from.join("folder")).expect("link");
    pair.mirror(false).expect("mirror");
    for (name, to) in [("file", "/etc/passwd"), ("folder", "/etc")] {
        assert_eq!(
            fs::read_link(pair.into.join(name)).expect("link"),
            Path::new(to)
        );
    }
}

#[test]
fn sockets_and_pipes_are_left_out_and_block_nothing() {
    let pair = Pair::new();
    let _socket = UnixListener::bind(pair.from.join("socket")).expect("socket");
    mknodat(CWD, pair.from.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("pipe");
    pair.write("file", "x");
    let stats = pair.mirror(false).expect("mirror");
    assert_eq!((stats.entries, stats.skipped), (1, 2));
}

#[test]
fn marks_mean_something_only_in_an_overlay() {
    let pair = Pair::new();
    pair.write("folder/file", "x");
    whiteout(&pair.from.join("removed"));
    opaque(&pair.from.join("folder"));
    let opaque_copy =
        || walk::is_opaque(File::open(pair.into.join("folder")).expect("open")).expect("attribute");

    pair.mirror(false).expect("mirror");
    assert!(pair.into.join("removed").symlink_metadata().is_err());
    assert!(!opaque_copy());
    pair.mirror(true).expect("mirror");
    assert!(is_whiteout(&pair.into.join("removed")));
    assert!(opaque_copy());
    pair.mirror(false).expect("mirror");
    assert!(!is_whiteout(&pair.into.join("removed")));
    assert!(!opaque_copy());
}

#[test]
fn a_huge_hole_costs_nothing() {
    let pair = Pair::new();
    let file = File::create(pair.from.join("sparse")).expect("file");
    let size = 8 << 40;
    file.set_len(size).expect("length");
    file.write_all_at(b"here", 5 << 40).expect("write");
    let stats = pair.mirror(false).expect("mirror");
    assert!(stats.copied_bytes <= 1 << 20, "{stats:?}");
    let copy = File::open(pair.into.join("sparse")).expect("open");
    let mut word = [0; 4];
    copy.read_exact_at(&mut word, 5 << 40).expect("read");
    assert_eq!(&word, b"here");
    let meta = copy.metadata().expect("meta");
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 <= 1 << 20);
    assert!(summarize(&pair.into).expect("digest").bytes <= 1 << 20);
}

#[test]
fn a_hole_and_written_zeros_are_the_same_content() {
    let (holes, zeros) = (Pair::new(), Pair::new());
    let file = File::create(holes.into.join("file")).expect("file");
    file.set_len(1_000_000).expect("length");
    file.write_all_at(b"x", 500_000).expect("write");
    let mut content = vec![0; 1_000_000];
    content[500_000] = b'x';
    fs::write(zeros.into.join("file"), &content).expect("write");
    let digest = |pair: &Pair| summarize(&pair.into).expect("digest").digest;
    assert_eq!(digest(&holes), digest(&zeros));
    content[999_999] = 1;
    fs::write(zeros.into.join("file"), &content).expect("write");
    assert_ne!(
        digest(&holes),
        digest(&zeros),
        "control: another byte is another digest"
    );
}

#[test]
fn hard_links_stay_hard_links() {
    let pair = Pair::new();
    pair.write("a", &"x".repeat(100_000));
    for name in ["b", "c"] {
        fs::hard_link(pair.from.join("a"), pair.from.join(name)).expect("link");
    }
    let inode = |name: &str| pair.into.join(name).metadata().expect("meta").ino();
    assert_eq!(pair.mirror(false).expect("mirror").copied, 1);
    assert_eq!((inode("a"), inode("a")), (inode("b"), inode("c")));
    settle();
    pair.mirror(false).expect("mirror");
    assert_eq!(pair.mirror(false).expect("mirror").copied, 0);
    assert_eq!((inode("a"), inode("a")), (inode("b"), inode("c")));
    assert!(
        !pair.into.with_extension("part").exists(),
        "nothing is left beside it"
    );
}

#[test]
fn a_link_to_what_was_saved_is_not_read() {
    let pair = Pair::new();
    fs::write(pair.into.join("same"), "x".repeat(100_000)).expect("write");
    fs::hard_link(pair.into.join("same"), pair.from.join("same")).expect("link");
    pair.write("new", "y");
    let stats = pair.mirror(false).expect("mirror");
    assert_eq!((stats.copied, stats.compared_bytes), (1, 0), "{stats:?}");
    // Control: another file with the same content is read.
    fs::remove_file(pair.from.join("same")).expect("remove");
    fs::copy(pair.into.join("same"), pair.from.join("same")).expect("copy");
    let saved = fs::metadata(pair.into.join("same")).expect("meta");
    let copy = File::open(pair.from.join("same")).expect("open");
    copy.set_modified(saved.modified().expect("time"))
        .expect("time");
    let stats = pair.mirror(false).expect("mirror");
    assert!(stats.compared_bytes > 0, "{stats:?}");
}

#[test]
fn what_its_owner_may_not_read_is_kept_readable() {
    let pair = Pair::new();
    pair.write("closed/file", "x");
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    set(&pair.from.join("closed/file"), 0o4000).expect("mode");
    set(&pair.from.join("closed"), 0o000).expect("mode");
    pair.mirror(false).expect("mirror");
    let mode = |path: PathBuf| path.metadata().expect("meta").mode() & 0o7777;
    assert_eq!(
        mode(pair.from.join("closed")),
        0o000,
        "the original stays as it was"
    );
    assert_eq!(mode(pair.into.join("closed")), 0o700);
    assert_eq!(
        mode(pair.into.join("closed/file")),
        0o600,
        "and set-id bits are dropped"
    );
    assert_eq!(pair.read("closed/file").as_deref(), Some("x"));
    set(&pair.from.join("closed"), 0o700).expect("mode");
}

#[test]
fn odd_names_are_names() {
    let pair = Pair::new();
    let long = vec![b'n'; 255];
    let names: [&[u8]; 5] = [b"\xff\xfe", b"new\nline", b" ", b"-rf", &long];
    for name in names {
        fs::write(pair.from.join(OsStr::from_bytes(name)), name).expect("write");
    }
    pair.mirror(false).expect("mirror");
    for name in names {
        assert_eq!(
            fs::read(pair.into.join(OsStr::from_bytes(name))).expect("read"),
            name
        );
    }
}

#[test]
fn a_bottomless_tree_is_refused() {
    let pair = Pair::new();
    let mut path = pair.from.clone();
    (0..MAX_DEPTH + 1).for_each(|_| path.push("d"));
    fs::create_dir_all(&path).expect("folders");
    let error = pair.mirror(false).expect_err("refused");
    assert!(error.to_string().contains("nested"), "{error}");
}

#[test]
fn a_frozen_layer_shares_its_files_and_never_changes() {
    let pair = Pair::new();
    pair.write("a", "one");
    pair.write("b/c", "two");
    pair.mirror(false).expect("mirror");
    let layer = pair.into.with_file_name("layer");
    fs::create_dir(&layer).expect("folder");
    link_tree(&pair.into, &layer).expect("link");
    let before = summarize(&layer).expect("digest");
    assert_eq!(before, summarize(&pair.into).expect("digest"));
    let inode = |path: PathBuf| path.metadata().expect("meta").ino();
    assert_eq!(inode(layer.join("b/c")), inode(pair.into.join("b/c")));

    pair.write("a", "changed");
    fs::set_permissions(pair.from.join("b/c"), Permissions::from_mode(0o755)).expect("mode");
    fs::remove_dir_all(pair.from.join("b")).expect("remove");
    pair.mirror(false).expect("mirror");
    assert_eq!(summarize(&layer).expect("digest"), before);
    assert_eq!(pair.read("a").as_deref(), Some("changed"));
}

#[test]
fn the_digest_sees_everything_but_times() {
    let pair = Pair::new();
    let layer = &pair.into;
    fs::write(layer.join("file"), "x").expect("write");
    fs::create_dir(layer.join("folder")).expect("folder");
    symlink("to", layer.join("link")).expect("link");
    let digest = || summarize(layer).expect("digest").digest;
    let original = digest();
    File::open(layer.join("file"))
        .and_then(|f| f.set_modified(std::time::UNIX_EPOCH))
        .expect("time");
    assert_eq!(digest(), original);

    let set = |name: &str, mode| {
        fs::set_permissions(layer.join(name), Permissions::from_mode(mode)).expect("mode");
    };
    let mut seen = vec![original];
    let mut changed = || {
        let now = digest();
        assert!(!seen.contains(&now));
        seen.push(now);
    };
    fs::write(layer.join("file"), "y").expect("write");
    changed();
    set("file", 0o755);
    changed();
    set("folder", 0o711);
    changed();
    opaque(&layer.join("folder"));
    changed();
    whiteout(&layer.join("removed"));
    changed();
    fs::remove_file(layer.join("link")).expect("remove");
    symlink("other", layer.join("link")).expect("link");
    changed();
    fs::rename(layer.join("file"), layer.join("folder/file")).expect("rename");
    changed();
    fs::write(layer.join("empty"), "").expect("write");
    changed();
}

#[test]
fn merged_layers_look_like_the_stack() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |path: &str| folder.path().join(path);
    let put = |path: &str, text: &str| {
        fs::create_dir_all(at(path).parent().expect("parent")).expect("folder");
        fs::write(at(path), text).expect("write");
    };
    put("1/kept", "1");
    put("1/replaced", "1");
    put("1/removed", "1");
    put("1/folder/kept", "1");
    put("1/folder/removed", "1");
    put("1/hidden/file", "1");
    put("1/turned/file", "1");
    put("2/replaced", "2");
    put("2/hidden/new", "2");
    put("2/folder/new", "2");
    put("2/turned", "2");
    opaque(&at("2/hidden"));
    whiteout(&at("2/removed"));
    whiteout(&at("2/folder/removed"));
    put("3/removed/again", "3");
    fs::create_dir(at("merged")).expect("folder");
    let layers = [at("1"), at("2"), at("3")];
    merge(&layers, &at("merged")).expect("merge");
    let seen = stacked(&layers).expect("walked");
    assert_eq!(seen, summarize(&at("merged")).expect("digest").bytes);
    let all: u64 = layers
        .iter()
        .map(|layer| summarize(layer).expect("digest").bytes)
        .sum();
    assert!(seen < all, "control: something is hidden");

    let read = |path: &str| fs::read_to_string(at("merged").join(path)).ok();
    let expected = [
        ("kept", "1"),
        ("replaced", "2"),
        ("folder/kept", "1"),
        ("folder/new", "2"),
        ("hidden/new", "2"),
        ("turned", "2"),
        ("removed/again", "3"),
    ];
    for (path, text) in expected {
        assert_eq!(read(path).as_deref(), Some(text), "{path}");
    }
    for path in ["folder/removed", "hidden/file"] {
        assert!(
            at("merged").join(path).symlink_metadata().is_err(),
            "{path}"
        );
    }
    assert_eq!(summarize(&at("merged")).expect("digest").entries, 10);
    assert!(!walk::is_opaque(File::open(at("merged/hidden")).expect("open")).expect("attribute"));
}
