//! The file of the user's configuration: what is written, what is kept, what is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use brig_config::{Alias, Change, Disk, Error, List, Store, UserConfig};
use brig_hosts::Rule;
use tempfile::TempDir;

struct ConfigFile {
    directory: TempDir,
    store: Store,
}

impl ConfigFile {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path().join("brig/config.yaml"));
        Self { directory, store }
    }

    fn with(text: &str) -> Self {
        let place = Self::new();
        fs::create_dir_all(place.store.path().parent().unwrap()).unwrap();
        fs::write(place.store.path(), text).unwrap();
        place
    }

    fn text(&self) -> String {
        fs::read_to_string(self.store.path()).unwrap()
    }

    fn config(&self) -> UserConfig {
        self.store.load(&Disk).unwrap().0
    }

    fn change(&self, list: List, change: Change, hosts: &[&str]) -> (Vec<String>, Vec<String>) {
        let changed = self
            .store
            .change(list, change, &rules(hosts), |_| Ok(()))
            .unwrap();
        (texts(&changed.done), texts(&changed.already))
    }
}

fn rules(hosts: &[&str]) -> Vec<Rule> {
    hosts.iter().map(|host| host.parse().unwrap()).collect()
}

fn texts(rules: &[Rule]) -> Vec<String> {
    rules.iter().map(ToString::to_string).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_added_and_what_was_there_are_told_apart() {
    let place = ConfigFile::new();
    let added = place.change(List::Allow, Change::Add, &["b.org", "A.org.", "a.org"]);
    assert_eq!(added.0, ["b.org", "a.org"]);
    assert!(added.1.is_empty(), "twice in one batch is not `already`");
    let added = place.change(List::Allow, Change::Add, &["a.org", "c.org:8443"]);
    assert_eq!(added, (vec!["c.org:8443".into()], vec!["a.org".into()]));
    assert_eq!(
        texts(place.config().allow()),
        ["b.org", "a.org", "c.org:8443"]
    );
}

#[test]
fn the_file_and_its_folder_are_for_their_owner_alone() {
    let place = ConfigFile::new();
    place.change(List::Allow, Change::Add, &["a.org"]);
    assert_eq!(mode(place.store.path()), 0o600);
    assert_eq!(mode(place.store.path().parent().unwrap()), 0o700);
    fs::set_permissions(place.store.path(), fs::Permissions::from_mode(0o644)).unwrap();
    place.change(List::Allow, Change::Add, &["b.org"]);
    assert_eq!(mode(place.store.path()), 0o600);
}

#[test]
fn comments_unknown_keys_and_style_are_kept() {
    let text = "\
# my settings
theme: dark   # of another program
sandbox_allowlist:   # for work
  # the mirror
  - \"Mirror.example.org\"   # ask Jo
  - b.org
nested: {a: [1, 2], b: null}

aliases: # short
  one:
    path: /agents/one.yaml # the first
  two: {path: /agents/two.yaml, sandbox: false}
";
    let place = ConfigFile::with(text);
    place.change(List::Allow, Change::Add, &["*.c.org", "[2001:db8::1]:80"]);
    place.change(List::Allow, Change::Remove, &["b.org"]);
    place.change(List::Block, Change::Add, &["bad.org"]);
    let alias = Alias {
        path: "/agents/three \"3\".yaml".into(),
        sandbox: Some(true),
    };
    place.store.set_alias("three", &alias).unwrap();
    assert!(place.store.remove_alias("one").unwrap());
    assert_eq!(
        place.text(),
        "\
# my settings
theme: dark   # of another program
sandbox_allowlist:   # for work
  # the mirror
  - \"Mirror.example.org\"   # ask Jo
  - \"*.c.org\"
  - \"[2001:db8::1]:80\"
nested: {a: [1, 2], b: null}

aliases: # short
  two: {path: /agents/two.yaml, sandbox: false}
  \"three\":
    path: \"/agents/three \\\"3\\\".yaml\"
    sandbox: true
sandbox_blocklist:
  - bad.org
"
    );
    let config = place.config();
    assert_eq!(config.aliases()["three"], alias);
    assert_eq!(config.aliases()["two"].sandbox, Some(false));
    assert_eq!(config.aliases().len(), 2);
    assert_eq!(config.block(), rules(&["bad.org"]));
}

#[test]
fn removing_what_is_not_there_touches_nothing() {
    let place = ConfigFile::with("sandbox_allowlist: [a.org]  # x\n");
    let before = fs::metadata(place.store.path()).unwrap();
    let removed = place.change(List::Allow, Change::Remove, &["b.org", "a.org:8443"]);
    assert_eq!(removed.1, ["b.org", "a.org:8443"]);
    let present = place.change(List::Allow, Change::Add, &["a.org"]);
    assert_eq!(present.1, ["a.org"]);
    assert!(!place.store.remove_alias("none").unwrap());
    use std::os::unix::fs::MetadataExt;
    let after = fs::metadata(place.store.path()).unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    let removed = place.change(List::Allow, Change::Remove, &["A.ORG"]);
    assert_eq!(removed.0, ["a.org"], "control: what is there goes");
    assert_eq!(place.text(), "sandbox_allowlist: []  # x\n");
}

#[test]
fn eight_writers_lose_nothing() {
    let place = ConfigFile::with("# kept\nother: 1\nsandbox_allowlist: [first.org]\n");
    thread::scope(|scope| {
        for writer in 0..8 {
            let store = &place.store;
            scope.spawn(move || {
                for n in 0..6 {
                    let rule = format!("w{writer}-{n}.example.org");
                    let list = if n % 2 == 0 { List::Allow } else { List::Block };
                    store
                        .change(list, Change::Add, &rules(&[&rule]), |_| Ok(()))
                        .unwrap();
                }
            });
        }
    });
    let config = place.config();
    for writer in 0..8 {
        for n in 0..6 {
            let rule: Rule = format!("w{writer}-{n}.example.org").parse().unwrap();
            let list = if n % 2 == 0 {
                config.allow()
            } else {
                config.block()
            };
            assert!(list.contains(&rule), "{rule}");
        }
    }
    assert_eq!((config.allow().len(), config.block().len()), (25, 24));
    assert!(place.text().starts_with("# kept\nother: 1\n"));
    let left: Vec<_> = fs::read_dir(place.store.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
}

#[test]
fn a_change_that_cannot_be_recorded_is_not_made() {
    let place = ConfigFile::with("sandbox_allowlist: [a.org]\n");
    let failed = place
        .store
        .change(List::Allow, Change::Add, &rules(&["b.org"]), |changed| {
            assert_eq!(changed.done, rules(&["b.org"]));
            Err("the disk is full".into())
        });
    assert!(matches!(&failed, Err(Error::Unrecorded(why)) if why == "the disk is full"));
    assert_eq!(place.text(), "sandbox_allowlist: [a.org]\n");
    place.change(List::Allow, Change::Add, &["b.org"]);
    assert_eq!(
        place.text(),
        "sandbox_allowlist: [a.org, b.org]\n",
        "control"
    );
}

#[test]
fn a_file_that_is_not_sound_is_neither_used_nor_changed() {
    let host = "sandbox_allowlist:\n  - a.org\n";
    for (text, line, part) in [
        (
            "sandbox_allowlist: [\"a.org, b.org\"]\n",
            1,
            "more than one entry",
        ),
        ("sandbox_allowlist: [a.org\n", 2, "not YAML"),
        (&format!("{host}  - https://b.org\n"), 3, "it is a URL"),
        (
            &format!("{host}sandbox_allowlist: []\n"),
            3,
            "was given on line 1 already",
        ),
        (
            &format!("{host}sandbox_blocklsit: []\n"),
            3,
            "unknown key `sandbox_blocklsit`",
        ),
        ("sandbox: maybe\n", 1, "must be `true` or `false`"),
        ("sandbox_allowlist: a.org\n", 1, "must be a list"),
        ("aliases: {x: {path: relative.yaml}}\n", 1, "not absolute"),
        (
            "aliases: {\"../x\": {path: /x}}\n",
            1,
            "not a valid alias name",
        ),
        ("aliases: {x: {sandbox: true}}\n", 1, "`path` is missing"),
        ("- a\n", 1, "must be a map"),
    ] {
        let place = ConfigFile::with(text);
        let error = place.store.load(&Disk).unwrap_err();
        let Error::Invalid { problems, .. } = &error else {
            panic!("{text}: {error}");
        };
        let found = problems
            .iter()
            .any(|problem| problem.at.line == line && problem.to_string().contains(part));
        assert!(found, "{text}: {problems:#?}");
        let hosts = rules(&["z.org"]);
        let record = |_: &_| panic!("nothing to record");
        let change = place.store.change(List::Allow, Change::Add, &hosts, record);
        assert!(matches!(change, Err(Error::Invalid { .. })), "{text}");
        assert_eq!(place.text(), text);
    }
    let valid = ConfigFile::with(host);
    assert_eq!(valid.config().allow(), rules(&["a.org"]), "control");
}

#[test]
fn keys_of_others_are_named_and_do_not_matter() {
    let place = ConfigFile::with("zebra: {a: 1}\nsandbox: false\n");
    let (config, said) = place.store.load(&Disk).unwrap();
    assert_eq!(config.sandbox(), Some(false));
    assert_eq!(said.len(), 1);
    assert!(said[0].to_string().contains("unknown key `zebra`"));
}

#[test]
fn no_file_is_empty_but_an_unreadable_one_is_an_error() {
    assert_eq!(ConfigFile::new().config(), UserConfig::default());
    let place = ConfigFile::new();
    fs::create_dir_all(place.store.path()).unwrap();
    let error = place.store.load(&Disk).unwrap_err();
    assert_eq!(error.code(), "config.unreadable", "a directory: {error}");
    let place = ConfigFile::with("");
    fs::remove_file(place.store.path()).unwrap();
    symlink("nowhere", place.store.path()).unwrap();
    let error = place.store.load(&Disk).unwrap_err();
    assert_eq!(
        error.code(),
        "config.unreadable",
        "a link to nowhere: {error}"
    );
    let huge = ConfigFile::with(&format!("# {}\n", "x".repeat(1 << 20)));
    assert_eq!(huge.store.load(&Disk).unwrap_err().code(), "config.invalid");
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let place = ConfigFile::with("");
    let real = place.directory.path().join("dotfiles.yaml");
    fs::write(&real, "sandbox_allowlist: [a.org]\n").unwrap();
    fs::remove_file(place.store.path()).unwrap();
    symlink(&real, place.store.path()).unwrap();
    place.change(List::Allow, Change::Add, &["b.org"]);
    assert!(place.store.path().is_symlink());
    assert_eq!(
        fs::read_to_string(&real).unwrap(),
        "sandbox_allowlist: [a.org, b.org]\n"
    );
}

#[test]
fn a_text_that_cannot_be_changed_without_loss_is_refused_whole() {
    let text = "base: &hosts [a.org]\nsandbox_allowlist: *hosts\n";
    let place = ConfigFile::with(text);
    assert_eq!(place.config().allow(), rules(&["a.org"]));
    let change = place
        .store
        .change(List::Allow, Change::Add, &rules(&["b.org"]), |_| Ok(()));
    assert!(matches!(change, Err(Error::Shape(_))), "{change:?}");
    assert_eq!(place.text(), text);
}

#[test]
fn what_a_killed_process_left_is_replaced_and_not_followed() {
    let place = ConfigFile::with("");
    let left = place.store.path().with_added_extension("brig-new");
    let other = place.directory.path().join("other");
    fs::write(&other, "mine").unwrap();
    for make in [
        |left: &Path, _: &Path| fs::write(left, "half a te"),
        |left: &Path, other: &Path| symlink(other, left),
    ] {
        make(&left, &other).unwrap();
        place.change(List::Allow, Change::Add, &["a.example"]);
        assert!(place.text().contains("a.example"));
        assert!(left.symlink_metadata().is_err());
        place.change(List::Allow, Change::Remove, &["a.example"]);
    }
    assert_eq!(fs::read_to_string(other).unwrap(), "mine");
}

#[test]
fn two_links_to_one_file_share_its_lock() {
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("shared.yaml");
    fs::write(&shared, "").unwrap();
    let stores = ["a", "b"].map(|name| {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        symlink(&shared, own.join("config.yaml")).unwrap();
        Store::new(own.join("config.yaml"))
    });
    thread::scope(|scope| {
        for (name, store) in ["a", "b"].into_iter().zip(&stores) {
            scope.spawn(move || {
                for number in 0..20 {
                    let host = format!("{name}{number}.example");
                    let change =
                        store.change(List::Allow, Change::Add, &rules(&[&host]), |_| Ok(()));
                    change.unwrap();
                }
            });
        }
    });
    assert_eq!(stores[0].load(&Disk).unwrap().0.allow().len(), 40);
}
