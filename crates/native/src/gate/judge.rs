//! What the lists say to a program that is asked for.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brig_linux::notify::Answer;
use brig_policy::{CommandMode, Commands};
use brig_sandbox::commands::Scan;
use rustix::io::Errno;

use brig_caller::{Asked, Caller, FileId, Place};

#[derive(Clone, Debug)]
pub struct Judge {
    pub commands: Commands,
    pub scan: Arc<Scan>,
    /// Where stand-ins are under the names of denied programs.
    pub folder: PathBuf,
    /// The folders that programs are usually looked for in.
    pub path: Vec<String>,
    /// The file that all stand-ins are.
    pub shim: OnceLock<Option<FileId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// There is no such program, and nobody minds.
    Nothing,
    Allowed,
    /// A rule is about it that can't be held, or is not to be.
    Observed,
    Denied,
    NotAllowed,
}

impl Ruling {
    pub fn allowed(self) -> bool {
        matches!(self, Ruling::Nothing | Ruling::Allowed | Ruling::Observed)
    }

    pub fn code(self) -> &'static str {
        match self {
            Ruling::Nothing | Ruling::Allowed => "command.allowed",
            Ruling::Observed => "command.observed",
            Ruling::Denied => "command.denied",
            Ruling::NotAllowed => "command.not-allowed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub ruling: Ruling,
    pub rule: Option<Arc<str>>,
    pub answer: Answer,
    /// The kernel starts a stand-in, which says so itself.
    pub stands_in: bool,
}

/// The name of the stand-in itself, in its folder.
pub const SHIM: &str = ".shim";

const REFUSED: Answer = Answer::Errno(Errno::ACCESS.raw_os_error());

impl Verdict {
    fn new(ruling: Ruling, rule: Option<&Arc<str>>) -> Self {
        Self {
            ruling,
            rule: rule.cloned(),
            answer: if ruling.allowed() {
                Answer::Continue
            } else {
                REFUSED
            },
            stands_in: false,
        }
    }
}

impl Judge {
    /// Learns which file the stand-in is, from whoever asks first: the guest, for the first program
    /// of the sandbox. Later, folders above a stand-in may have other names.
    pub fn learn(&self, caller: &Caller) {
        let place = self.folder.join(SHIM);
        self.shim.get_or_init(|| caller.file_at(&place));
    }

    /// Whether a file is a stand-in, by its place or by what it is.
    pub fn stand_in(&self, path: &Path, file: Option<FileId>) -> Option<Verdict> {
        let known = || {
            let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
            self.scan.names.get(name)
        };
        let denied = self.scan.denied.get(path).map(|denied| &denied.rule);
        let rule = denied.or_else(known);
        let is_shim = file.is_some() && self.shim.get() == Some(&file);
        (rule.is_some() || is_shim).then(|| Verdict {
            answer: Answer::Continue,
            stands_in: true,
            ..Verdict::new(Ruling::Denied, rule)
        })
    }

    /// What a name of the stand-in stands for, and where that is if it is installed.
    pub fn stands_for<'a>(&'a self, path: &'a Path) -> Option<(&'a str, Option<&'a Path>)> {
        let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
        self.scan.names.get(name)?;
        let mut denied = self.scan.denied.iter();
        let covered = denied.find(|(_, denied)| denied.name == name);
        Some((name, covered.map(|(path, _)| path.as_path())))
    }

    /// Where a search that has begun would find what it looks for.
    pub fn search(&self, caller: &Caller, asked: &Asked) -> Option<PathBuf> {
        let (folder, name) = asked.program.rsplit_once('/')?;
        let begun = self.path.iter().position(|known| known == folder)?;
        self.path[begun..].iter().find_map(|folder| {
            let place = caller.find(&Path::new(folder).join(name));
            place.path().map(Path::to_owned)
        })
    }

    pub fn judge(&self, caller: &Caller, asked: &Asked) -> Verdict {
        let place = asked.place.path();
        if let Some(denied) = place.and_then(|path| self.stand_in(path, asked.file)) {
            return denied;
        }
        if let Some(rule) = self.named(asked) {
            return Verdict::new(Ruling::Denied, Some(&rule));
        }
        if let Some(rule) = self.loaded(caller, asked) {
            return Verdict::new(Ruling::Denied, Some(&rule));
        }
        if let Some(allowed) = &self.scan.allowed {
            let may = match &asked.place {
                Place::File(path) => allowed.has(path),
                Place::Missing => self.is_listed(asked),
                // The kernel knows.
                Place::Unknown => true,
            };
            if !may {
                return Verdict::new(Ruling::NotAllowed, None);
            }
        }
        if asked.place == Place::Missing {
            return Verdict::new(Ruling::Nothing, None);
        }
        self.observed(asked)
    }

    /// By its name alone, wherever it is: also where it is not.
    fn named(&self, asked: &Asked) -> Option<Arc<str>> {
        let places = [Some(Path::new(&asked.program)), asked.place.path()];
        places.into_iter().flatten().find_map(|path| {
            let by_path = self.scan.denied.get(path).map(|denied| &denied.rule);
            let name = || self.scan.names.get(path.file_name()?.to_str()?);
            by_path.or_else(name).cloned()
        })
    }

    /// A loader that is told to run a denied file. It can't read it; this is for the record.
    fn loaded(&self, caller: &Caller, asked: &Asked) -> Option<Arc<str>> {
        let place = asked.place.path()?;
        if !is_loader(place) {
            return None;
        }
        let mut words = asked.arguments.iter().skip(1);
        let file = loop {
            let word = words.next()?;
            match word.as_str() {
                "--library-path"
                | "--preload"
                | "--audit"
                | "--argv0"
                | "--inhibit-rpath"
                | "--glibc-hwcaps-prepend"
                | "--glibc-hwcaps-mask" => drop(words.next()),
                option if option.starts_with("--") => {}
                file => break file,
            }
        };
        let (place, found) = caller.find_file(Path::new(file));
        let inner = Asked {
            program: file.to_owned(),
            place,
            file: found,
            arguments: Vec::new(),
        };
        let place = inner.place.path();
        let stand_in = place.and_then(|path| self.stand_in(path, found));
        stand_in
            .and_then(|denied| denied.rule)
            .or_else(|| self.named(&inner))
    }

    fn is_listed(&self, asked: &Asked) -> bool {
        let held = |mode| mode == CommandMode::Enforce;
        let mut lists = self.commands.allowed.iter().filter(|list| held(list.mode));
        lists.all(|list| {
            list.entries
                .iter()
                .any(|entry| entry.is_about(&asked.program))
        })
    }

    /// Rules that can only be observed, and those that are not to be held.
    fn observed(&self, asked: &Asked) -> Verdict {
        let arguments = asked.arguments.get(1..).unwrap_or_default();
        let names = || {
            let place = asked.place.path().and_then(Path::to_str);
            [Some(asked.program.as_str()), place].into_iter().flatten()
        };
        for list in &self.commands.denied {
            if let Some(entry) = names().find_map(|name| list.find(name, arguments)) {
                return Verdict::new(Ruling::Observed, Some(&entry.rule));
            }
        }
        for list in &self.commands.allowed {
            if !names().any(|name| list.find(name, arguments).is_some()) {
                let by_path = self.scan.allowed.as_ref().zip(asked.place.path());
                let only_arguments = list.entries.iter().any(|entry| !entry.arguments.is_empty());
                let held = list.mode == CommandMode::Enforce && !only_arguments;
                if !(held && by_path.is_some_and(|(allowed, path)| allowed.has(path))) {
                    return Verdict::new(Ruling::Observed, None);
                }
            }
        }
        Verdict::new(Ruling::Allowed, None)
    }

    /// What is wrong with a program that has started, which the kernel names. Only an allowlist
    /// says what is right.
    pub fn started(&self, program: Option<&Path>, file: Option<FileId>) -> Option<Verdict> {
        let allowed = self.scan.allowed.as_ref()?;
        let stands_in = |path| self.stand_in(path, file).is_some();
        let fine = program.is_some_and(|path| allowed.has(path) || stands_in(path));
        (!fine).then(|| Verdict::new(Ruling::NotAllowed, None))
    }
}

fn is_loader(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("ld") && name.contains(".so"))
}
