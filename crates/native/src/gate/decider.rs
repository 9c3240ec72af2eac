//! Decides on the start of a program by the command lists of the policy.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brig_guest_host::commands::Scan;
use brig_linux::notify::Answer;
use brig_policy::{CommandMode, Commands};
use brig_reason::ReasonCode;
use rustix::io::Errno;

use brig_audit::Command;
use brig_caller::{Caller, FileId, PendingStart, RequestedProgram, ResolvedPath};

#[derive(Clone, Debug)]
pub(crate) struct CommandDecider {
    pub commands: Commands,
    pub scan: Arc<Scan>,
    /// The directory of stand-ins, under the names of denied programs.
    pub stand_ins: PathBuf,
    /// The default `PATH`.
    pub path: Vec<String>,
    /// Files that are recognised by device and inode, under any name.
    pub known: OnceLock<Known>,
    /// Where the code can write.
    pub writable: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// All stand-ins are hard links to this file.
    shim: Option<FileId>,
    /// Dynamic loaders that are not on the list of allowed programs.
    loaders: Vec<FileId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// There is no such program, and no rule about it.
    Nothing,
    Allowed,
    /// A rule is about it that can't be enforced, or only has to be observed.
    Observed,
    Denied,
    NotAllowed,
}

impl Effect {
    pub(crate) fn allowed(self) -> bool {
        matches!(self, Effect::Nothing | Effect::Allowed | Effect::Observed)
    }

    pub(crate) fn code(self) -> ReasonCode {
        match self {
            Effect::Nothing | Effect::Allowed => ReasonCode::CommandAllowed,
            Effect::Observed => ReasonCode::CommandObserved,
            Effect::Denied => ReasonCode::CommandDenied,
            Effect::NotAllowed => ReasonCode::CommandNotAllowed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub effect: Effect,
    pub rule: Option<Arc<str>>,
    pub answer: Answer,
    /// The kernel starts a stand-in, which reports itself.
    pub is_stand_in: bool,
}

/// The name of the stand-in itself, in its directory.
pub(crate) const SHIM: &str = ".shim";

const REFUSED: Answer = Answer::Errno(Errno::ACCESS.raw_os_error());

impl Decision {
    fn new(effect: Effect, rule: Option<&Arc<str>>) -> Self {
        Self {
            effect,
            rule: rule.cloned(),
            answer: if effect.allowed() {
                Answer::Continue
            } else {
                REFUSED
            },
            is_stand_in: false,
        }
    }
}

impl CommandDecider {
    /// Looks up the stand-in and the loaders at the first request, which is the guest's own, before
    /// any untrusted code runs. Later, code may have renamed directories above them.
    pub(crate) fn learn(&self, caller: &Caller) {
        self.known.get_or_init(|| {
            let shim = caller.file_at(&self.stand_ins.join(SHIM));
            let allowed = self.scan.allowed.as_ref();
            let loaders = allowed.into_iter().flat_map(|allowed| {
                let loaders = allowed.loaders.iter();
                loaders.filter(|path| !allowed.has(path))
            });
            let loaders = loaders.filter_map(|path| caller.file_at(path)).collect();
            Known { shim, loaders }
        });
    }

    fn is_shim(&self, file: Option<FileId>) -> bool {
        file.is_some() && self.known.get().is_some_and(|known| known.shim == file)
    }

    fn is_loader(&self, file: Option<FileId>) -> bool {
        let known = self.known.get().zip(file);
        known.is_some_and(|(known, file)| known.loaders.contains(&file))
    }

    /// The decision if a file is a stand-in, which reports itself. Not by its path: in a writable
    /// directory, another file may be there by now.
    pub(crate) fn stand_in(&self, path: &Path, file: Option<FileId>) -> Option<Decision> {
        self.is_shim(file).then(|| {
            let known = || {
                let name = path.strip_prefix(&self.stand_ins).ok()?.to_str()?;
                self.scan.names.get(name)
            };
            let denied = self.scan.denied.get(path).map(|denied| &denied.rule);
            Decision {
                answer: Answer::Continue,
                is_stand_in: true,
                ..Decision::new(Effect::Denied, denied.or_else(known))
            }
        })
    }

    /// The program that a stand-in replaces, and its path if it is installed.
    pub(crate) fn replaced_by<'a>(&'a self, path: &'a Path) -> Option<(&'a str, Option<&'a Path>)> {
        let name = path.strip_prefix(&self.stand_ins).ok()?.to_str()?;
        self.scan.names.get(name)?;
        let mut denied = self.scan.denied.iter();
        let covered = denied.find(|(_, denied)| denied.name == name);
        Some((name, covered.map(|(path, _)| path.as_path())))
    }

    /// What a search through `PATH` will find after this directory.
    fn search(&self, caller: &Caller, requested: &RequestedProgram) -> Option<PathBuf> {
        let (folder, name) = requested.program.rsplit_once('/')?;
        let begun = self.path.iter().position(|known| known == folder)?;
        self.path[begun..].iter().find_map(|folder| {
            let path = caller.find(&Path::new(folder).join(name));
            path.path().map(Path::to_owned)
        })
    }

    /// The requested file. If nothing is there, the one that a search through `PATH` will find.
    pub(crate) fn resolved_file(
        &self,
        caller: &Caller,
        requested: &RequestedProgram,
    ) -> Option<PathBuf> {
        let path = requested.resolved.path().map(Path::to_owned);
        path.or_else(|| self.search(caller, requested))
    }

    pub(crate) fn decide(&self, caller: &Caller, requested: &RequestedProgram) -> Decision {
        let path = requested.resolved.path();
        if let Some(denied) = path.and_then(|path| self.stand_in(path, requested.file)) {
            return denied;
        }
        if let Some(rule) = self.denying_rule(requested) {
            return Decision::new(Effect::Denied, Some(&rule));
        }
        if let Some(denied) = self.through_denied(caller, requested) {
            return denied;
        }
        let listed = match (&self.scan.allowed, &requested.resolved) {
            (None, _) => true,
            (Some(allowed), ResolvedPath::File(path)) => {
                let program = allowed.programs.contains(path) && !self.is_loader(requested.file);
                program || self.runs_listed_script(caller, path, &requested.arguments)
            }
            (Some(_), ResolvedPath::Missing(_)) => self.is_listed(requested),
            (Some(_), ResolvedPath::Unknown) => false,
        };
        if !listed {
            return Decision::new(Effect::NotAllowed, None);
        }
        match requested.resolved {
            // Answered here and not by the kernel: a file may have been created since.
            ResolvedPath::Missing(error) => Decision {
                answer: Answer::Errno(error.raw_os_error()),
                ..Decision::new(Effect::Nothing, None)
            },
            // It may be one of the denied programs.
            ResolvedPath::Unknown if self.denies() => Decision::new(Effect::Denied, None),
            _ => self.observed(requested),
        }
    }

    /// Whether any program is denied by its name or path.
    pub(crate) fn denies(&self) -> bool {
        !(self.scan.denied.is_empty() && self.scan.names.is_empty())
    }

    /// A script whose interpreter is denied, or a dynamic loader whose arguments name a denied file.
    /// Both are checked again after the start, because the caller may change them in between.
    fn through_denied(&self, caller: &Caller, requested: &RequestedProgram) -> Option<Decision> {
        if !(self.denies() && requested.resolved.path().is_some()) {
            return None;
        }
        let Some(interpreters) = caller.interpreters(requested, |file| self.is_shim(file)) else {
            // The kernel may start anything.
            return Some(Decision::new(Effect::Denied, None));
        };
        // A stand-in reports itself.
        let mut others = interpreters.iter().filter(|one| !self.is_shim(one.file));
        if let Some(rule) = others.find_map(|one| self.denying_rule(one)) {
            return Some(Decision::new(Effect::Denied, Some(&rule)));
        }
        let words = requested.arguments.iter().map(OsStr::new);
        let loader = caller.requests_loader(requested);
        loader.then(|| self.loads_denied(caller, words)).flatten()
    }

    /// Whether an interpreter that is only allowed for scripts is started with a listed script, as `env`
    /// does.
    fn runs_listed_script(&self, caller: &Caller, path: &Path, arguments: &[String]) -> bool {
        let allowed = self.scan.allowed.iter();
        let mut scripts = allowed.flat_map(|allowed| allowed.requested_scripts(path, arguments));
        scripts.any(|(at, script)| {
            let word = arguments.get(at).filter(|word| self.is_fixed(word));
            word.is_some_and(|word| caller.find(Path::new(word)).path() == Some(script))
        })
    }

    /// Whether a path still leads to the same file when an interpreter opens it.
    fn is_fixed(&self, path: &str) -> bool {
        let path = Path::new(path);
        let links = ["/proc", "/dev"].map(Path::new);
        let mut others = links
            .into_iter()
            .chain(self.writable.iter().map(PathBuf::as_path));
        path.is_absolute()
            && !path.components().any(|part| part == Component::ParentDir)
            && !others.any(|other| path.starts_with(other))
    }

    /// The rule that denies a program by its name or path, whether it exists or not.
    fn denying_rule(&self, requested: &RequestedProgram) -> Option<Arc<str>> {
        let paths = [
            Some(Path::new(&requested.program)),
            requested.resolved.path(),
        ];
        let mut paths = paths.into_iter().flatten();
        paths.find_map(|path| self.rule_for(path)).cloned()
    }

    fn rule_for(&self, path: &Path) -> Option<&Arc<str>> {
        // The kernel appends this to the path of an open file that was removed.
        let removed = path
            .to_str()
            .and_then(|path| path.strip_suffix(" (deleted)"));
        let path = removed.map_or(path, Path::new);
        let by_path = self.scan.denied.get(path).map(|denied| &denied.rule);
        by_path.or_else(|| self.scan.names.get(path.file_name()?.to_str()?))
    }

    /// The decision about a loader that has started, by all of its arguments as the kernel passed them.
    pub(crate) fn started_loader(&self, caller: &Caller, program: &Path) -> Option<Decision> {
        if !(self.denies() && caller.runs_loader(program)) {
            return None;
        }
        match caller.all_arguments() {
            Some(words) => self.loads_denied(caller, words.iter().map(OsString::as_os_str)),
            // It may run anything.
            None => Some(Decision::new(Effect::Denied, None)),
        }
    }

    /// A loader whose arguments name a denied file. It can't read a stand-in, but a file that was
    /// created later.
    fn loads_denied<'a>(
        &self,
        caller: &Caller,
        words: impl Iterator<Item = &'a OsStr>,
    ) -> Option<Decision> {
        let loaded = caller.loads(words)?;
        let path = loaded.file.resolved.path();
        let stand_in = path.and_then(|path| self.stand_in(path, loaded.file.file));
        let rule = stand_in
            .and_then(|denied| denied.rule)
            .or_else(|| self.denying_rule(&loaded.file));
        (rule.is_some() || !loaded.known).then(|| Decision::new(Effect::Denied, rule.as_ref()))
    }

    fn is_listed(&self, requested: &RequestedProgram) -> bool {
        let enforced = |mode| mode == CommandMode::Enforce;
        let mut lists = self
            .commands
            .allowed
            .iter()
            .filter(|list| enforced(list.mode));
        lists.all(|list| {
            list.entries
                .iter()
                .any(|entry| entry.is_about(&requested.program))
        })
    }

    /// Rules that can only be observed, and those in observe mode.
    pub(crate) fn observed(&self, requested: &RequestedProgram) -> Decision {
        let arguments = requested.arguments.get(1..).unwrap_or_default();
        let names = || {
            let path = requested.resolved.path().and_then(Path::to_str);
            [Some(requested.program.as_str()), path]
                .into_iter()
                .flatten()
        };
        for list in &self.commands.denied {
            if let Some(entry) = names().find_map(|name| list.find(name, arguments)) {
                return Decision::new(Effect::Observed, Some(&entry.rule));
            }
        }
        for list in &self.commands.allowed {
            if !names().any(|name| list.find(name, arguments).is_some()) {
                let by_path = self.scan.allowed.as_ref().zip(requested.resolved.path());
                let only_arguments = list.entries.iter().any(|entry| !entry.arguments.is_empty());
                let enforced = list.mode == CommandMode::Enforce && !only_arguments;
                if !(enforced && by_path.is_some_and(|(allowed, path)| allowed.has(path))) {
                    return Decision::new(Effect::Observed, None);
                }
            }
        }
        Decision::new(Effect::Allowed, None)
    }

    /// The denial of the path that was passed to `execve`. For a script, that is the script's path.
    pub(crate) fn started_as(&self, caller: &Caller) -> Option<Decision> {
        let path = caller.started_as().filter(|_| self.denies())?;
        let rule = self.rule_for(Path::new(&path))?;
        Some(Decision::new(Effect::Denied, Some(rule)))
    }

    /// The denial of a started interpreter that is only allowed for scripts: the request must have been
    /// for a listed script, and this must be what the kernel starts for it.
    pub(crate) fn started_interpreter(
        &self,
        caller: &Caller,
        program: &Path,
        start: Option<&PendingStart<Command>>,
        file: Option<FileId>,
    ) -> Option<Decision> {
        let allowed = self.scan.allowed.as_ref()?;
        if !allowed.only_interprets(program) {
            return None;
        }
        let for_script = start.is_some_and(|start| {
            let requested = &start.requested;
            let listed = requested.resolved.path().is_some_and(|path| {
                let script = allowed.programs.contains(path) && self.is_fixed(&requested.program);
                script || self.runs_listed_script(caller, path, &requested.arguments)
            });
            listed && start.is_as_requested(*caller, file)
        });
        (!for_script).then(|| Decision::new(Effect::NotAllowed, None))
    }

    /// The denial of a started program, by what the kernel runs: the request may have changed since it
    /// was read.
    pub(crate) fn started(&self, program: Option<&Path>, file: Option<FileId>) -> Option<Decision> {
        if self.is_shim(file) {
            return None;
        }
        if let Some(rule) = program.and_then(|path| self.rule_for(path)) {
            return Some(Decision::new(Effect::Denied, Some(rule)));
        }
        let allowed = self.scan.allowed.as_ref()?;
        let listed = program.is_some_and(|path| allowed.has(path)) && !self.is_loader(file);
        (!listed).then(|| Decision::new(Effect::NotAllowed, None))
    }
}
