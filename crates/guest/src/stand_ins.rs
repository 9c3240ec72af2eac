//! Denied programs in a container: the stand-ins in their place, and other files with their names.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use brig_caller::{Caller, FileId, RequestedProgram};
use brig_wire::{DeniedPrograms, Exec};

/// Characters of a path that are reported.
const LONGEST: usize = 1024;

/// What is denied, and the files that are stand-ins.
#[derive(Debug)]
pub(crate) struct StandIns {
    denied: DeniedPrograms,
    files: HashSet<FileId>,
}

impl StandIns {
    /// To be called before any program runs: then the files at these paths are the stand-ins.
    pub(crate) fn find(denied: DeniedPrograms) -> Self {
        let names = denied.names.iter();
        let names = names.map(|name| format!("{}/{name}", denied.directory));
        let covered = denied.covered.iter().map(|path| shown(path));
        let files = names.chain(covered);
        let files = files.filter_map(|path| FileId::of(&path)).collect();
        Self { denied, files }
    }

    pub(crate) fn has(&self, file: Option<FileId>) -> bool {
        file.is_some_and(|file| self.files.contains(&file))
    }

    /// By its name or path, wherever it is. Not for stand-ins, which report themselves.
    pub(crate) fn deny(&self, exec: &Exec, file: Option<FileId>) -> bool {
        let path = exec.path.as_deref().unwrap_or_default();
        !self.has(file) && self.names(&exec.program, path)
    }

    fn names(&self, program: &str, path: &str) -> bool {
        let denied = &self.denied;
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let names = [name(program), name(path)];
        let is_path = |denied: &str| denied == program || denied == path;
        denied.names.iter().any(|denied| names.contains(denied))
            || denied.covered.iter().any(|path| is_path(&shown(path)))
            || denied.elsewhere.iter().any(|path| is_path(path))
    }

    /// The denied file that is started through this one: as a script's interpreter, or by a dynamic
    /// loader. Empty if such a file can't be determined.
    pub(crate) fn denied_through(
        &self,
        caller: Caller,
        requested: &RequestedProgram,
    ) -> Option<String> {
        requested.resolved.path()?;
        let Some(interpreters) = caller.interpreters(requested, |file| self.has(file)) else {
            return Some(String::new());
        };
        // A stand-in reports itself.
        let mut others = interpreters.iter().filter(|one| !self.has(one.file));
        if let Some(denied) = others.find_map(|one| self.denied_path(one)) {
            return Some(denied);
        }
        let words = requested.arguments.iter().map(OsStr::new);
        let loader = caller.requests_loader(requested);
        loader.then(|| self.loads(caller, words)).flatten()
    }

    /// Whether a script is started by a stand-in.
    pub(crate) fn interprets(&self, caller: Caller, script: &RequestedProgram) -> bool {
        let interpreters = caller
            .interpreters(script, |file| self.has(file))
            .unwrap_or_default();
        interpreters.iter().any(|one| self.has(one.file))
    }

    fn loads<'a>(&self, caller: Caller, words: impl Iterator<Item = &'a OsStr>) -> Option<String> {
        let loaded = caller.loads(words)?;
        let unknown = || (!loaded.known).then(String::new);
        self.denied_path(&loaded.file).or_else(unknown)
    }

    /// The path of a file, if it is denied.
    fn denied_path(&self, file: &RequestedProgram) -> Option<String> {
        let path = file.resolved.path().map(text).unwrap_or_default();
        if !(self.has(file.file) || self.names(&file.program, &path)) {
            return None;
        }
        let shown = if path.is_empty() {
            &file.program
        } else {
            &path
        };
        Some(shown.chars().take(LONGEST).collect())
    }

    /// The same for a loader that has started. Now all of its arguments count, as the kernel passed
    /// them.
    pub(crate) fn started_loader(&self, caller: Caller, program: &Path) -> Option<String> {
        if !caller.runs_loader(program) {
            return None;
        }
        match caller.all_arguments() {
            Some(words) => self.loads(caller, words.iter().map(OsString::as_os_str)),
            None => Some(String::new()),
        }
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// In a container, all paths are UTF-8.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
