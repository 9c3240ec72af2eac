//! The look at a root file system.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brig_policy::{CommandEntry, CommandList, CommandMode, Commands, command_sets};
use rustix::fs::{Dir, Stat};
use serde::{Deserialize, Serialize};

use super::memory::{self, Seen};
use super::multicall;
use super::root::Root;
use super::startup::{self, Startup};

/// What lists of commands mean in one root. Paths are those inside, without links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Files that must not be started, and why.
    pub denied: BTreeMap<PathBuf, Denied>,
    /// Names that must not be started, wherever they are found, and by which rule.
    pub names: BTreeMap<String, Arc<str>>,
    /// Nothing if all may be started but what is denied.
    pub allowed: Option<Allowed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub rule: Arc<str>,
    /// The name by which it was found; other names may lead to it.
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    pub programs: BTreeSet<PathBuf>,
    /// What starts scripts that are allowed. Not to be started for anything else.
    pub interpreters: BTreeSet<PathBuf>,
    /// Those that `env` starts.
    #[serde(rename = "told")]
    pub requested_scripts: Vec<RequestedScript>,
    /// What the kernel starts programs with.
    pub loaders: BTreeSet<PathBuf>,
    /// Entries that nothing was found for.
    pub missing: Vec<String>,
    /// Scripts that won't start, and the shell that is not listed.
    pub without_shell: Vec<(PathBuf, PathBuf)>,
}

/// What `env` starts for a script: these words, and then the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedScript {
    pub program: PathBuf,
    pub words: Vec<String>,
    pub script: PathBuf,
}

impl Allowed {
    /// Everything that has to be executable.
    pub fn executable(&self) -> impl Iterator<Item = &Path> {
        let all = self.programs.iter().chain(&self.interpreters);
        all.chain(&self.loaders).map(PathBuf::as_path)
    }

    /// Whether a program may be started, and its interpreter too.
    pub fn starts(&self, path: &Path) -> bool {
        let mut without = self.without_shell.iter();
        self.has(path) && !without.any(|(script, _)| script == path)
    }

    /// Whether a program is only there for scripts that are allowed.
    pub fn only_interprets(&self, path: &Path) -> bool {
        self.interpreters.contains(path) && !self.programs.contains(path)
    }

    /// Which of the arguments is the script that `env` starts this program for.
    pub fn requested_scripts(
        &self,
        path: &Path,
        arguments: &[String],
    ) -> impl Iterator<Item = (usize, &Path)> {
        let scripts = self.requested_scripts.iter();
        scripts.filter_map(move |requested| {
            let same = requested.program == path && arguments.starts_with(&requested.words);
            same.then_some((requested.words.len(), requested.script.as_path()))
        })
    }

    /// Whether a program may be started, by itself or as the interpreter of a script.
    pub fn has(&self, path: &Path) -> bool {
        self.programs.contains(path) || self.interpreters.contains(path)
    }
}

/// Looks for what is held of the lists. What was found before counts while nothing that was looked
/// at has changed.
pub fn scan(commands: &Commands, root: &Root) -> Arc<Scan> {
    memory::recall(commands, root, || look(commands, root))
}

fn held(list: &&CommandList) -> bool {
    list.mode == CommandMode::Enforce
}

fn whole(entry: &&CommandEntry) -> bool {
    entry.arguments.is_empty()
}

pub(super) fn look(commands: &Commands, root: &Root) -> (Scan, Seen) {
    let mut look = Look {
        root,
        scan: Scan::default(),
        seen: RefCell::default(),
        linked: HashMap::new(),
    };
    for list in commands.denied.iter().filter(held) {
        for entry in list.entries.iter().filter(whole) {
            look.deny(entry);
        }
    }
    look.deny_applets();
    look.deny_links();
    let lists = commands.allowed.iter().filter(held);
    let mut lists = lists
        .map(|list| look.listed(list))
        .collect::<Vec<_>>()
        .into_iter();
    if let Some((mut programs, mut missing)) = lists.next() {
        for (other, not_found) in lists {
            programs.retain(|path| other.contains(path));
            missing.extend(not_found);
        }
        programs.retain(|path| !look.scan.denied.contains_key(path));
        look.scan.allowed = Some(look.allow(programs, missing));
    }
    (look.scan, look.seen.into_inner())
}

struct Look<'a> {
    root: &'a Root,
    scan: Scan,
    /// Every path that was followed.
    seen: RefCell<Seen>,
    /// Denied files with several names.
    linked: HashMap<(u64, u64), Links>,
}

struct Links {
    count: usize,
    denied: Denied,
    found: BTreeSet<PathBuf>,
}

impl Look<'_> {
    fn file(&self, path: &Path) -> Option<(PathBuf, Stat)> {
        let found = self.root.file(path);
        self.seen.borrow_mut().note(path, found.as_ref());
        found
    }

    fn deny(&mut self, entry: &CommandEntry) {
        let root = self.root;
        if entry.is_path() {
            let path = PathBuf::from(&*entry.program);
            if let Some((found, stat)) = self.file(&path) {
                self.deny_file(found, &stat, &entry.program, &entry.rule);
            }
            // In a folder that is mounted later, it may be there all the same.
            let (name, rule) = (entry.program.to_string(), entry.rule.clone());
            self.scan
                .denied
                .entry(path)
                .or_insert(Denied { rule, name });
            return;
        }
        let (name, rule) = (&*entry.program, &entry.rule);
        let names = &mut self.scan.names;
        names
            .entry(name.to_owned())
            .or_insert_with(|| Arc::clone(rule));
        for folder in root.folders.iter().filter(|folder| folder.has(name)) {
            if let Some((found, stat)) = self.file(&folder.path.join(name)) {
                self.deny_file(found, &stat, name, rule);
            }
        }
    }

    fn deny_file(&mut self, path: PathBuf, stat: &Stat, name: &str, rule: &Arc<str>) {
        let denied = Denied {
            rule: Arc::clone(rule),
            name: name.to_owned(),
        };
        if stat.st_nlink > 1 {
            let links = self.linked.entry((stat.st_dev, stat.st_ino));
            let links = links.or_insert_with(|| Links {
                count: usize::try_from(stat.st_nlink).unwrap_or(usize::MAX),
                denied: denied.clone(),
                found: BTreeSet::new(),
            });
            links.found.insert(path.clone());
        }
        self.scan.denied.entry(path).or_insert(denied);
    }

    /// A program that can be told to be a denied one is denied.
    fn deny_applets(&mut self) {
        for many in multicall::all() {
            let mut names = self.scan.names.iter();
            let applet = names.find(|(name, _)| many.applets.contains(name.as_str()));
            let Some((applet, rule)) = applet.map(|(name, rule)| (name.clone(), rule.clone()))
            else {
                continue;
            };
            let root = self.root;
            for folder in &root.folders {
                for name in many.names.iter().filter(|name| folder.has(name)) {
                    if let Some((path, stat)) = self.file(&folder.path.join(name)) {
                        self.deny_file(path, &stat, &applet, &rule);
                    }
                }
            }
        }
    }

    /// Other names of denied files: first where programs are, and if some are missing, everywhere.
    fn deny_links(&mut self) {
        if self.linked.is_empty() {
            return;
        }
        let root = self.root;
        for folder in &root.folders {
            self.links_in(&folder.path, &mut Vec::new());
        }
        let mut open = Vec::new();
        if self.some_missing() {
            open = root.shown();
        }
        while let Some(folder) = open.pop() {
            self.links_in(&folder, &mut open);
            if !self.some_missing() {
                break;
            }
        }
    }

    fn some_missing(&self) -> bool {
        let mut linked = self.linked.values();
        linked.any(|links| links.found.len() < links.count)
    }

    fn links_in(&mut self, folder: &Path, below: &mut Vec<PathBuf>) {
        use rustix::fs::{AtFlags, FileType, OFlags, statat};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok((fd, folder)) = self.root.resolve(folder, flags) else {
            return;
        };
        let Ok(entries) = Dir::read_from(&fd) else {
            return;
        };
        let inodes: BTreeSet<u64> = self.linked.keys().map(|(_, inode)| *inode).collect();
        for entry in entries.flatten() {
            // Any name will do to start a program.
            let name = entry.file_name().to_bytes();
            let path = folder.join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    }),
                kind => kind,
            };
            match kind {
                FileType::Directory if !matches!(name, b"." | b"..") => below.push(path),
                FileType::RegularFile if inodes.contains(&entry.ino()) => {
                    let Some((path, stat)) = self.file(&path) else {
                        continue;
                    };
                    let links = self.linked.get_mut(&(stat.st_dev, stat.st_ino));
                    if let Some(links) = links {
                        links.found.insert(path.clone());
                        let denied = links.denied.clone();
                        self.scan.denied.entry(path).or_insert(denied);
                    }
                }
                _ => {}
            }
        }
    }

    /// The files of an allowlist, and the entries that there is no file for.
    fn listed(&self, list: &CommandList) -> (BTreeSet<PathBuf>, Vec<String>) {
        let (mut programs, mut missing) = (BTreeSet::new(), Vec::new());
        for entry in &list.entries {
            let before = programs.len();
            if entry.is_path() {
                programs.extend(self.file(Path::new(&*entry.program)).map(|(path, _)| path));
            } else {
                programs.extend(self.named(&entry.program));
            }
            // One of a set that is not there was not asked for.
            if programs.len() == before && !entry.rule.starts_with('@') {
                missing.push(entry.rule.to_string());
            }
        }
        missing.retain(|rule| {
            let program = rule.split(' ').next().unwrap_or_default();
            let path = Path::new(program);
            let found = if path.is_absolute() {
                self.file(path).is_some()
            } else {
                self.named(program).next().is_some()
            };
            !found
        });
        (programs, missing)
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        let folders = self.root.folders[..self.root.in_path].iter();
        folders
            .filter(move |folder| folder.has(name))
            .filter_map(move |folder| Some(self.file(&folder.path.join(name))?.0))
    }

    fn allow(&self, programs: BTreeSet<PathBuf>, missing: Vec<String>) -> Allowed {
        let mut allowed = Allowed {
            missing,
            ..Allowed::default()
        };
        let mut open: Vec<PathBuf> = programs.iter().cloned().collect();
        allowed.programs = programs;
        while let Some(path) = open.pop() {
            let start = self
                .root
                .start_of(&path, startup::ENOUGH)
                .unwrap_or_default();
            match startup::needs(&start) {
                Startup::Alone => {}
                Startup::Loader(loader) => {
                    allowed
                        .loaders
                        .extend(self.file(&loader).map(|(path, _)| path));
                }
                Startup::Script(interpreter, words) => {
                    let told = words
                        .first()
                        .into_iter()
                        .flat_map(|name| self.named(name))
                        .collect::<Vec<_>>();
                    allowed
                        .requested_scripts
                        .extend(told.iter().map(|program| RequestedScript {
                            program: program.clone(),
                            words: words.clone(),
                            script: path.clone(),
                        }));
                    let needed = self.file(&interpreter).map(|(path, _)| path);
                    for needed in needed.into_iter().chain(told) {
                        if allowed.has(&needed) {
                            continue;
                        }
                        if is_shell(&needed) || is_shell(&interpreter) {
                            allowed.without_shell.push((path.clone(), needed));
                        } else if !self.scan.denied.contains_key(&needed) {
                            allowed.interpreters.insert(needed.clone());
                            open.push(needed);
                        }
                    }
                }
            }
        }
        allowed
    }
}

/// Shells run only if they are listed.
fn is_shell(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let mut sets = command_sets().filter(|(set, _)| *set == "@shells");
    sets.any(|(_, shells)| shells.contains(&name))
}
