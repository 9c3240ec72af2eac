//! Programs that Brig itself starts outside of a sandbox, such as `ssh`. `PATH` names the environment of a
//! project while it is activated, and what code has left there must not be started by the next run.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use brig_input::program;
use rustix::fs::{Access, access};

use crate::mounts::links;
use crate::{SessionConfig, Unavailable, env};

/// An interpreter may be a script itself.
const INTERPRETERS: usize = 8;

/// Where programs of the host are looked for: directories of `PATH` in which no sandbox can write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPrograms {
    /// The operator's own, which counts as one that code can't change.
    given: Option<PathBuf>,
    directories: Vec<PathBuf>,
}

impl HostPrograms {
    /// Those of the `PATH` of this process.
    #[must_use]
    pub fn of_path() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::of(std::env::split_paths(&path))
    }

    fn of(directories: impl Iterator<Item = PathBuf>) -> Self {
        Self {
            given: None,
            directories: directories
                .filter(|one| one.is_absolute() && is_out_of_reach(one))
                .collect(),
        }
    }

    /// Looks in this directory first, because the operator says so.
    #[must_use]
    pub fn first_in(mut self, directory: Option<PathBuf>) -> Self {
        self.given = directory;
        self
    }

    /// Refuses a session that could write to the directory that the operator named.
    ///
    /// # Errors
    ///
    /// It could.
    pub fn check(&self, config: &SessionConfig) -> Result<(), Unavailable> {
        let Some(given) = &self.given else {
            return Ok(());
        };
        if !given.exists() || matches!(config.writable_place(given), Ok(None)) {
            return Ok(());
        }
        let problem = format!(
            "programs of `{}` are started on the host, and the sandbox could change them",
            given.display()
        );
        Err(Unavailable::new(problem))
    }

    /// What starts the program of that name: not in the current directory, with a `PATH` of these directories,
    /// and without the variables that make programs load or run something else.
    ///
    /// # Errors
    ///
    /// There is none, or only one that code in a sandbox could change.
    pub fn command(&self, name: &str) -> Result<Command, String> {
        let found = self.find(name)?;
        let mut command = Command::new(&found.file);
        // One file may be several programs, by the name that it is started with.
        command.arg0(&found.named);
        self.confine(&mut command);
        Ok(command)
    }

    fn confine(&self, command: &mut Command) {
        for (name, value) in std::env::vars_os() {
            let text = (name.to_string_lossy(), value.to_string_lossy());
            if env::decides_what_runs(&text.0) {
                command.env_remove(&name);
            }
        }
        command.env("PATH", self.path()).current_dir("/");
    }

    fn path(&self) -> OsString {
        let all = self.given.iter().chain(&self.directories);
        std::env::join_paths(all).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Result<Found, String> {
        let missing = format!("there is no program `{name}`");
        if name.is_empty() || name.contains('/') {
            return Err(missing);
        }
        if let Some(given) = &self.given
            && let Some(file) = program::find(name, [given.clone()]).next()
        {
            let named = file.clone();
            return Ok(Found { named, file });
        }
        let mut in_reach = None;
        for named in program::find(name, self.directories.iter().cloned()) {
            match self.resolve(&named) {
                Ok(file) => return Ok(Found { named, file }),
                Err(problem) => in_reach = in_reach.or(Some(problem)),
            }
        }
        // One that was passed over is named.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let other = || {
            let mut all = program::find(name, std::env::split_paths(&path));
            all.find(|path| !is_out_of_reach(path))
        };
        Err(in_reach
            .or_else(|| other().map(|other| could_change(&other)))
            .unwrap_or(missing))
    }

    /// The file itself, if neither it nor what interprets it can be changed by code.
    fn resolve(&self, named: &Path) -> Result<PathBuf, String> {
        let resolved = |path: &Path| out_of_reach(path).ok_or_else(|| could_change(path));
        let file = resolved(named)?;
        let mut next = file.clone();
        for _ in 0..INTERPRETERS {
            match self.interpreter(&next) {
                Some(interpreter) => next = resolved(&interpreter)?,
                None => break,
            }
        }
        Ok(file)
    }

    fn interpreter(&self, script: &Path) -> Option<PathBuf> {
        program::interpreter(script, self.directories.iter().cloned())
    }
}

fn could_change(path: &Path) -> String {
    format!(
        "`{}` is not started, because code in a sandbox could change it",
        path.display()
    )
}

struct Found {
    /// In a directory of `PATH`.
    named: PathBuf,
    /// Without links.
    file: PathBuf,
}

fn is_out_of_reach(path: &Path) -> bool {
    out_of_reach(path).is_some()
}

/// The path without links, if no sandbox can be given what it leads to, nor a link on the way.
fn out_of_reach(path: &Path) -> Option<PathBuf> {
    let (found, links) = links::resolved(path)?;
    let parents = links.iter().filter_map(|link| link.parent());
    let mut places = std::iter::once(found.as_path()).chain(parents);
    places
        .all(|place| links::is_system(place) || is_of_root(place))
        .then_some(found)
}

/// Whether only root can change it: sandboxes of other users have no more rights than these.
fn is_of_root(place: &Path) -> bool {
    let by_root_alone = |path: &Path| {
        let owner = std::fs::symlink_metadata(path).map(|found| found.uid());
        owner.is_ok_and(|uid| uid == 0) && access(path, Access::WRITE_OK).is_err()
    };
    !rustix::process::geteuid().is_root() && place.ancestors().all(by_root_alone)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn of(directories: &[&Path]) -> HostPrograms {
        HostPrograms::of(directories.iter().map(|one| (*one).to_owned()))
    }

    #[test]
    fn what_code_may_have_left_in_path_is_passed_over() {
        let project = tempfile::tempdir().expect("a directory");
        let (project, system) = (project.path(), Path::new("/usr/bin"));
        write(&project.join("env"), "#!/bin/sh\n");
        // The control: the project comes first.
        let path = [project.to_owned(), system.to_owned()];
        assert_eq!(program::find("env", path).next(), Some(project.join("env")));
        let programs = of(&[project, Path::new("relative"), system]);
        assert_eq!(programs.directories, [system]);
        let found = programs.find("env").expect("that of the system");
        assert_eq!(found.file, fs::canonicalize("/usr/bin/env").expect("env"));
        let problem = programs.find("brig-is-nowhere").err();
        assert_eq!(
            problem.as_deref(),
            Some("there is no program `brig-is-nowhere`")
        );
        for name in ["", "../bin/env", "/usr/bin/env"] {
            assert!(programs.find(name).is_err(), "{name}");
        }
        // Said by the operator.
        let given = programs.first_in(Some(project.to_owned()));
        assert_eq!(given.find("env").expect("given").file, project.join("env"));
    }

    #[test]
    fn a_link_or_a_script_leads_to_nothing_that_code_can_change() {
        let project = tempfile::tempdir().expect("a directory");
        let project = project.path();
        write(&project.join("tool"), "");
        let link = project.join("link");
        symlink("/usr/bin/env", &link).expect("a link");
        assert_eq!(out_of_reach(&link), None, "the link can be changed");
        assert_eq!(out_of_reach(&project.join("tool")), None);
        assert!(out_of_reach(Path::new("/usr/bin/env")).is_some());
        let programs = of(&[Path::new("/usr/bin")]);
        // What would interpret a script is looked at in the same way.
        let python = project.join("python");
        write(&python, "");
        let script = project.join("script");
        write(&script, &format!("#!{}\n", python.display()));
        let interpreter = programs.interpreter(&script).expect("one");
        assert_eq!((out_of_reach(&interpreter), interpreter), (None, python));
        write(&script, "#!/usr/bin/env env\n");
        let interpreter = programs.interpreter(&script).expect("one");
        assert!(is_out_of_reach(&interpreter), "control: {interpreter:?}");
        assert!(programs.resolve(&script).is_err());
        assert!(!is_of_root(project));
    }

    #[test]
    fn a_program_gets_no_variable_that_decides_what_it_runs() {
        let programs = of(&[Path::new("/usr/bin")]);
        let command = programs.command("env").expect("env");
        let variables: Vec<_> = command.get_envs().collect();
        let path = (
            std::ffi::OsStr::new("PATH"),
            Some(std::ffi::OsStr::new("/usr/bin")),
        );
        assert!(variables.contains(&path), "{variables:?}");
        assert_eq!(command.get_current_dir(), Some(Path::new("/")));
        for name in ["LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "SSH_ASKPASS"] {
            assert!(env::decides_what_runs(name), "{name}");
        }
        for name in ["HOME", "SSH_AUTH_SOCK", "LANG", "AWS_PROFILE", "PATH"] {
            assert!(!env::decides_what_runs(name), "{name}");
        }
    }
}
