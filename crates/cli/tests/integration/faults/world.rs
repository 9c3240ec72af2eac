//! A state directory with sessions in it, and what a user sees of it.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::{Brig, Done};

/// Prints every file with its content.
const READ: &str = "for f in *; do [ ! -f \"$f\" ] || echo \"$f=$(cat \"$f\")\"; done";

/// A user's state and settings, which can be had again as they were made.
pub(super) struct World {
    brig: Brig,
    /// How many records it was made with.
    records: usize,
    key: String,
}

/// What must not get lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    sessions: BTreeMap<String, Session>,
    allowed: Value,
    blocked: Value,
    /// Whether the log has the key that it was made with.
    same_key: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    files: String,
    allowed: Value,
    blocked: Value,
    checkpoints: BTreeMap<String, String>,
}

impl World {
    /// `unused`: with a session that `brig prune` removes.
    pub(super) fn new(unused: bool) -> Self {
        let mut world = Self {
            brig: Brig::new(),
            records: 0,
            key: String::new(),
        };
        for id in ["mine", "other", "unused"]
            .into_iter()
            .take(2 + usize::from(unused))
        {
            world.must(["session", "create", id]);
            for (value, checkpoint) in [("1", Some("first")), ("2", None)] {
                let write = format!("echo {id}{value} > a; echo {value} > b{value}");
                world.must(["session", "exec", id, "--", "sh", "-c", &write]);
                if let Some(name) = checkpoint {
                    world.must(["session", "checkpoint", id, name]);
                }
            }
        }
        world.must(["session", "network", "allow", "mine", "a.example"]);
        world.must(["sandbox", "allow", "b.example"]);
        world.must(["sandbox", "block", "c.example"]);
        if unused {
            world.age("unused");
        }
        world.records = world.records().len();
        world.key = world.key_now();
        copy(world.place(), world.brig.home().join("as-made"));
        world
    }

    /// As if a session had been used long ago.
    fn age(&self, id: &str) {
        let session = self.place().join("state/brig/sessions/default").join(id);
        let at = SystemTime::now() - Duration::from_secs(40 * 24 * 60 * 60);
        let times = FileTimes::new().set_modified(at).set_accessed(at);
        for entry in std::fs::read_dir(&session).unwrap() {
            let file = File::open(entry.unwrap().path()).unwrap();
            file.set_times(times).unwrap();
        }
        File::open(&session).unwrap().set_times(times).unwrap();
    }

    /// Everything that Brig writes is below.
    pub(super) fn place(&self) -> PathBuf {
        self.brig.home().join("world")
    }

    pub(super) fn reset(&self) {
        std::fs::remove_dir_all(self.place()).unwrap();
        copy(self.brig.home().join("as-made"), self.place());
    }

    /// As it is now, from now on.
    pub(super) fn keep(&self) {
        let made = self.brig.home().join("as-made");
        std::fs::remove_dir_all(&made).unwrap();
        copy(self.place(), made);
    }

    pub(super) fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.brig.command(words);
        command
            .env("XDG_STATE_HOME", self.place().join("state"))
            .env("XDG_CONFIG_HOME", self.place().join("config"));
        command
    }

    #[track_caller]
    pub(super) fn must<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Done {
        Done(self.command(words).output().unwrap()).exits(0)
    }

    /// Whether everything is as it was made, so that nobody has to look.
    pub(super) fn is_as_made(&self) -> bool {
        let made = self.brig.home().join("as-made");
        contents(&self.place()) == contents(&made)
    }

    /// The records that came after it was made.
    pub(super) fn records(&self) -> Vec<Value> {
        let shown = self.must(["audit", "show", "--json"]).stdout();
        let records = shown.lines().skip(self.records);
        records
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].take())
            .collect()
    }

    /// Restores every checkpoint to see what is in it, so it is worn out afterwards.
    pub(super) fn view(&self) -> View {
        let list = self.must(["session", "ls", "--json"]).json();
        let ids = list["sessions"].as_array().unwrap().iter();
        let sessions = ids
            .map(|session| {
                let id = session["session_id"].as_str().unwrap();
                (id.to_owned(), self.session(id))
            })
            .collect();
        let mut hosts = self.must(["sandbox", "list", "--json"]).json();
        let view = View {
            sessions,
            allowed: hosts["allow"].take(),
            blocked: hosts["block"].take(),
            same_key: self.key == self.key_now(),
        };
        self.must(["audit", "verify"]);
        view
    }

    fn key_now(&self) -> String {
        std::fs::read_to_string(self.place().join("state/brig/audit/key.pub")).unwrap()
    }

    fn session(&self, id: &str) -> Session {
        let files = |id| {
            self.must(["session", "exec", id, "--", "sh", "-c", READ])
                .stdout()
        };
        let shown = self.must(["session", "inspect", id, "--json"]).json();
        let mut hosts = self
            .must(["session", "network", "show", id, "--json"])
            .json();
        let now = files(id);
        let checkpoints = shown["checkpoints"].as_array().unwrap().iter();
        let checkpoints = checkpoints
            .map(|checkpoint| {
                let name = checkpoint["name"].as_str().unwrap();
                self.must(["session", "restore", id, name]);
                (name.to_owned(), files(id))
            })
            .collect();
        Session {
            files: now,
            allowed: hosts["allow"].take(),
            blocked: hosts["deny"].take(),
            checkpoints,
        }
    }
}

/// With owners, modes and times.
/// Every file and directory, but for what says who has a session open or had.
fn contents(place: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut contents = BTreeMap::new();
    let mut directories = vec![place.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(place).unwrap().to_owned();
            let file = name.file_name().unwrap().to_str().unwrap();
            if ["owner.json", "owner.new", "lock", "busy", "change", "steps"].contains(&file) {
                continue;
            }
            let kind = path.symlink_metadata().unwrap().file_type();
            let bytes = kind.is_file().then(|| std::fs::read(&path).unwrap());
            contents.insert(name, bytes);
            if kind.is_dir() {
                directories.push(path);
            }
        }
    }
    contents
}

fn copy(from: PathBuf, to: PathBuf) {
    let done = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(done.unwrap().success());
}
