//! The Python that was asked for, and what of the host it needs. The caller named a program or an
//! environment; what lies in it (`pyvenv.cfg`, links) may have been written by an earlier run, so
//! where that leads is only shown if it is an installation that the caller has anyway.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Known, links, refuse, source};
use crate::Result;
use crate::plan::CheckedMount;

/// What is read of `pyvenv.cfg`, which has a few lines.
const LARGEST: u64 = 64 << 10;

/// Where version managers keep interpreters, below a home; `*` is one name.
const IN_HOMES: &[&str] = &[
    ".pyenv/versions/*",
    ".local/share/uv/python/*",
    ".local/share/mise/installs/python/*",
    ".local/share/rtx/installs/python/*",
    ".local/share/pypoetry/python/*",
    ".asdf/installs/python/*",
    ".rye/py/*",
    ".nix-profile",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    ".conda/envs/*",
];

/// The same for the whole machine.
const IN_THE_SYSTEM: &[&str] = &[
    "/opt/*",
    "/nix/store/*",
    "/home/linuxbrew/.linuxbrew/Cellar/*",
];

/// Variables of the caller that say where a manager keeps them.
const IN_VARIABLES: &[(&str, &str)] = &[
    ("PYENV_ROOT", "versions/*"),
    ("UV_PYTHON_INSTALL_DIR", "*"),
    ("ASDF_DATA_DIR", "installs/python/*"),
    ("MISE_DATA_DIR", "installs/python/*"),
    ("MAMBA_ROOT_PREFIX", ""),
];

/// An interpreter that was given, and what it brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The same path inside and outside.
    pub program: PathBuf,
    /// The root of the virtual environment, if it is one.
    pub virtual_env: Option<PathBuf>,
    /// Shown read-only under their own paths. What belongs to the system is there anyway.
    pub roots: Vec<CheckedMount>,
}

pub(super) fn check(given: &Path, known: &Known<'_>) -> Result<Python> {
    let wrong = |error: io::Error| refuse(given, error.to_string());
    let given = match std::path::absolute(given) {
        Ok(path) => path,
        Err(error) => return wrong(error),
    };
    // The last part may be a link: an environment is found by the path its interpreter was called
    // with.
    let (Some(above), Some(name)) = (given.parent(), given.file_name()) else {
        return refuse(&given, "it is not an interpreter");
    };
    let named = match links::follow(above) {
        Ok(above) => above.join(name),
        Err(error) => return wrong(error),
    };
    let program = if named.is_dir() {
        let environment = match links::follow(&named) {
            Ok(path) => path,
            Err(error) => return wrong(error),
        };
        let programs = ["bin/python3", "bin/python"].map(|name| environment.join(name));
        match programs.into_iter().find(|program| program.exists()) {
            Some(program) => program,
            None => {
                let problem = "it is not a virtual environment: there is no bin/python3 in it";
                return refuse(&environment, problem);
            }
        }
    } else {
        named
    };
    // What was judged is what is shown: the path is not looked up again, when it may lead elsewhere.
    let followed = links::follow(&program).ok();
    let named = followed.is_some();
    let real = match followed.map_or_else(|| fs::canonicalize(&program), Ok) {
        Ok(real) if real.is_file() => real,
        Ok(_) => return refuse(&program, "it is not an interpreter"),
        Err(error) => return wrong(error),
    };
    let prefix = prefix_of(&program);
    let config = match brig_input::read_unlinked(prefix.join("pyvenv.cfg"), LARGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return refuse(&prefix.join("pyvenv.cfg"), error.to_string()),
    };
    let mut python = Python {
        program,
        virtual_env: None,
        roots: Vec::new(),
    };
    match home_in(&config) {
        Some(home) => {
            python.show(&prefix, known)?;
            // `/bin` may be a link to `/usr/bin`, which lies elsewhere.
            let home = fs::canonicalize(&home).unwrap_or(home);
            let base = home.parent().unwrap_or(&home);
            python.derived(base, &prefix, "`home` in its pyvenv.cfg", known)?;
            python.virtual_env = Some(prefix);
        }
        // A link to an interpreter says nothing about the directory that the link lies in.
        None => {
            let base = prefix_of(&real);
            python.program = real;
            if named {
                python.show(&base, known)?;
            } else {
                python.derived(&base, &prefix, "its interpreter, a link,", known)?;
            }
        }
    }
    Ok(python)
}

impl Python {
    /// Shows a directory that the caller named, by its path without links.
    fn show(&mut self, root: &Path, known: &Known<'_>) -> Result<()> {
        if root.starts_with("/usr")
            || self
                .roots
                .iter()
                .any(|shown| root.starts_with(&shown.source))
        {
            return Ok(());
        }
        let found = source::check_folder(root, known)?;
        let mount = found.mount(root.to_owned(), false);
        if mount.source != root {
            return refuse(root, "it changed while it was being checked");
        }
        self.roots.push(mount);
        Ok(())
    }

    /// Shows a directory that something in `prefix` leads to.
    fn derived(&mut self, root: &Path, prefix: &Path, by: &str, known: &Known<'_>) -> Result<()> {
        if root.starts_with("/usr") || root.starts_with(prefix) || is_installation(root) {
            return self.show(root, known);
        }
        let root = root.display().to_string();
        refuse(
            prefix,
            format!(
                "{by} leads to `{}`, which is not a known Python installation, and code in a \
                 sandbox may have written that; if it is yours, set UV_PYTHON_INSTALL_DIR to the \
                 directory above it, or use its interpreter with --python",
                root.escape_debug()
            ),
        )
    }
}

fn home_in(config: &str) -> Option<PathBuf> {
    let pairs = config.lines().filter_map(|line| line.split_once('='));
    let mut homes = pairs.filter(|(key, _)| key.trim() == "home");
    homes.next().map(|(_, value)| PathBuf::from(value.trim()))
}

/// The directory above `bin`, or that of the program where there is none.
fn prefix_of(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap_or(Path::new("/"));
    match folder.file_name() {
        Some(name) if name == "bin" => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.to_owned(),
    }
}

/// Whether a directory is one that the caller keeps an interpreter in, or below one, and holds one.
/// `PATH` does not count: it may name the environment of a project, which code can write.
pub fn is_installation(root: &Path) -> bool {
    let known = || {
        let homes = source::homes();
        let in_homes = homes
            .iter()
            .flat_map(|home| IN_HOMES.iter().map(move |pattern| home.join(pattern)));
        let in_system = IN_THE_SYSTEM.iter().map(PathBuf::from);
        let in_variables = IN_VARIABLES.iter().filter_map(|(name, pattern)| {
            let place = PathBuf::from(std::env::var_os(name)?);
            Some(fs::canonicalize(place).ok()?.join(pattern))
        });
        let mut places = in_homes.chain(in_system).chain(in_variables);
        places.any(|pattern| is_below(root, &pattern))
    };
    holds_python(root) && known()
}

/// Whether a path is what the pattern says, or below it. A pattern may lie behind a link.
fn is_below(path: &Path, pattern: &Path) -> bool {
    let any = pattern.file_name().is_some_and(|name| name == "*");
    let place = if any { pattern.parent() } else { Some(pattern) };
    let Some(place) = place.and_then(|place| fs::canonicalize(place).ok()) else {
        return false;
    };
    let rest = path.strip_prefix(place).ok();
    rest.is_some_and(|rest| !any || rest.components().next().is_some())
}

/// Whether the standard library is there: an environment or any other directory has none.
fn holds_python(root: &Path) -> bool {
    ["lib", "lib64"].iter().any(|name| {
        let entries = fs::read_dir(root.join(name))
            .into_iter()
            .flatten()
            .flatten();
        let mut libraries = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("python3") || name.starts_with("pypy3")
        });
        libraries.any(|library| library.path().join("os.py").is_file())
    })
}
