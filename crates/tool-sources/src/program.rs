//! A program of the host that is a tool or a server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use brig_input::program;
use brig_linux::supervise::{Supervision, supervise};
use tokio::process::{Child, Command};

use crate::SourceError;
use crate::secrets::Secrets;

/// Variables of the caller that a tool gets. All others it gets by name: the caller's environment is full of
/// secrets that are not for tools.
const PASSED_ON: &[&str] = &[
    "HOME",
    "LOGNAME",
    "USER",
    "PATH",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
];

/// How many paths are looked at for interpreters.
const MOST_PATHS: usize = 256;

/// A program, its arguments, where it starts, and its variables. Found once, when it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Absolute.
    path: PathBuf,
    arguments: Vec<String>,
    /// Absolute.
    directory: PathBuf,
    variables: Vec<(String, OsString)>,
}

impl Program {
    /// Finds the program. A name with a `/` is a path, relative to `directory`; another one is looked for in
    /// PATH. It starts in `directory`.
    ///
    /// # Errors
    ///
    /// If there is no word, or no such program.
    pub fn find(words: &[String], directory: &Path) -> Result<Self, SourceError> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let Some((name, arguments)) = words.split_first().filter(|(name, _)| !name.is_empty())
        else {
            return Err(SourceError::Words("it names no program".into()));
        };
        let search = std::env::var_os("PATH").unwrap_or_default();
        let path = locate(name, &directory, &search);
        Ok(Self {
            path: path.ok_or_else(|| SourceError::NoProgram(name.clone()))?,
            arguments: arguments.to_vec(),
            directory,
            variables: Vec::new(),
        })
    }

    /// Gives it a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<OsString>) {
        self.variables.push((name.into(), value.into()));
    }

    /// Gives it a variable of the caller.
    ///
    /// # Errors
    ///
    /// If it is not set.
    pub fn pass_on(&mut self, name: &str) -> Result<(), SourceError> {
        let value = std::env::var_os(name).ok_or_else(|| SourceError::NoVariable(name.into()))?;
        self.set(name, value);
        Ok(())
    }

    /// The values of its variables.
    pub(crate) fn secrets(&self) -> Secrets {
        let values = self.variables.iter();
        Secrets::new(values.map(|(_, value)| value.to_string_lossy().into_owned()))
    }

    /// Where it starts.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes it start elsewhere. Arguments that are relative paths then mean something else.
    pub fn start_in(&mut self, directory: impl Into<PathBuf>) {
        self.directory = directory.into();
    }

    /// What decides what it does: the program, the interpreters of scripts, and every path in an argument or a
    /// variable, whether something is there or not, because code could create it. Where a path does not exist, this is the
    /// deepest directory on the way that does. `starts_here`: whether it will start in its directory; otherwise
    /// relative paths count only if they exist.
    #[must_use]
    pub fn decisive_paths(&self, starts_here: bool) -> Vec<PathBuf> {
        let mut found = vec![self.path.clone()];
        for word in &self.arguments {
            found.extend(absolute_parts(word));
            // `--config=FILE` names a file, too.
            let value = word.split_once('=').map(|(_, value)| value);
            let named = [Some(word.as_str()), value].into_iter().flatten();
            let named = named.filter(|name| !name.is_empty());
            let relative = named.map(|name| self.directory.join(name));
            found.extend(relative.filter(|path| starts_here || path.exists()));
        }
        for (_, value) in &self.variables {
            found.extend(absolute_parts(&value.to_string_lossy()));
        }
        let mut next = 0;
        while let Some(path) = found.get(next).filter(|_| next < MOST_PATHS) {
            let search = std::env::var_os("PATH").unwrap_or_default();
            let interpreter = program::interpreter(path, std::env::split_paths(&search));
            found.extend(interpreter.filter(|one| !found.contains(one)));
            next += 1;
        }
        found.iter().map(|path| deepest_existing(path)).collect()
    }

    /// The directories in which it finds programs.
    #[must_use]
    pub fn search_path(&self) -> Vec<PathBuf> {
        let own = self.variables.iter().rev().find(|(name, _)| name == "PATH");
        let value = own.map(|(_, value)| value.clone());
        let value = value
            .or_else(|| std::env::var_os("PATH"))
            .unwrap_or_default();
        std::env::split_paths(&value).collect()
    }

    /// For people.
    #[must_use]
    pub fn display(&self) -> String {
        let words = std::iter::once(self.path.display().to_string());
        let words = words.chain(self.arguments.iter().cloned());
        words.collect::<Vec<_>>().join(" ")
    }

    /// Starts it with pipes for its streams. It ends with everything it has started when the supervision is
    /// dropped.
    pub(crate) fn start(&self) -> io::Result<(Child, Supervision)> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.directory);
        command
            .env_clear()
            .envs(inherited())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let supervision = supervise(command.as_std_mut())?;
        Ok((command.spawn()?, supervision))
    }
}

fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        let name = name.to_str().unwrap_or_default();
        PASSED_ON.contains(&name) || name.starts_with("LC_")
    })
}

/// The absolute paths in a word, also within the text of a shell or a list of directories.
fn absolute_parts(word: &str) -> impl Iterator<Item = PathBuf> {
    let separates = |c: char| c.is_whitespace() || "'\"`=;:,()|&<>[]{}@".contains(c);
    let parts = word.split(separates).filter(|part| part.starts_with('/'));
    parts.map(PathBuf::from)
}

fn deepest_existing(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many links as the kernel follows, and as many directories as a path can have.
    for _ in 0..4096 {
        if path.exists() {
            break;
        }
        let target = path.read_link();
        if !path.pop() {
            break;
        }
        if let Ok(target) = target {
            path.push(target);
        }
    }
    path
}

fn locate(name: &str, directory: &Path, search: &OsStr) -> Option<PathBuf> {
    match name.contains('/') {
        true => Some(directory.join(name)).filter(|path| program::is_executable(path)),
        false => program::find(name, std::env::split_paths(search)).next(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_found_when_they_are_registered() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("fetch.sh");
        std::fs::write(&script, "#!/bin/sh\n").expect("written");
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let find = |list: &[&str]| Program::find(&words(list), directory.path());
        assert!(
            matches!(find(&["./fetch.sh"]), Err(SourceError::NoProgram(_))),
            "not executable"
        );
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("mode");
        let found = find(&["./fetch.sh", "--rules=fetch.sh", "fetch.sh", "other"]).expect("found");
        let same = directory.path().join("./fetch.sh");
        let known = [&same, &script, &script, &directory.path().to_owned()];
        let paths = found.decisive_paths(true);
        assert!(known.iter().all(|path| paths.contains(path)), "{paths:?}");
        assert!(find(&["sh"]).expect("in PATH").display().ends_with("/sh"));
        assert!(find(&["fetch.sh"]).is_err(), "not in PATH");
        // What is not there yet, what a word contains, what a variable names, and what interprets a script.
        let place = directory.path().join("place");
        std::fs::create_dir(&place).expect("a directory");
        let inside = |name: &str| place.join(name).display().to_string();
        let mut odd = find(&["sh", "-c", &format!(". {}; true", inside("later/x"))]).expect("sh");
        assert!(odd.decisive_paths(true).contains(&place), "{odd:?}");
        odd = find(&["sh"]).expect("sh");
        assert!(!odd.decisive_paths(true).contains(&place), "control");
        odd.set("PYTHONPATH", format!("/usr/lib:{}", inside("lib")));
        assert!(odd.decisive_paths(true).contains(&place), "{odd:?}");
        std::fs::write(&script, format!("#!{}\n", inside("interpreter"))).expect("script");
        let found = find(&["./fetch.sh"]).expect("found");
        assert!(found.decisive_paths(true).contains(&place), "{found:?}");
        std::os::unix::fs::symlink(inside("later"), directory.path().join("link")).expect("link");
        let found = find(&["sh", "link"]).expect("found");
        assert!(found.decisive_paths(true).contains(&place), "{found:?}");
        assert!(
            !found.decisive_paths(false).contains(&place),
            "starts elsewhere"
        );
        assert!(find(&["."]).is_err() && find(&[]).is_err() && find(&[""]).is_err());
        assert_eq!(locate("fetch.sh", directory.path(), OsStr::new(".:")), None);
    }
}
