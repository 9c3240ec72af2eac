//! Finds the interpreters: the system's, a given one, or a known installation in the caller's PATH. No
//! interpreter is run outside a sandbox.

use std::fs;
use std::path::{Path, PathBuf};

use brig_guest_host::link::Interpreters;
use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Language, Plan, Result, is_installation};

/// The largest `version` file of a version manager, which has one line.
const LARGEST: u64 = 4 << 10;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Interpreters by their path in the sandbox, and the host directories that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundInterpreters {
    interpreters: Interpreters,
    folders: Vec<CheckedMount>,
    /// Comes first in PATH.
    first: Option<String>,
    virtual_env: Option<String>,
}

impl FoundInterpreters {
    pub(crate) fn in_sandbox(&self) -> Interpreters {
        self.interpreters.clone()
    }

    /// Mounted read-only at their own paths.
    pub(crate) fn folders(&self) -> &[CheckedMount] {
        &self.folders
    }

    /// The `PATH`, unless the plan sets one.
    pub(crate) fn path(&self) -> String {
        match &self.first {
            Some(first) => format!("{first}:{PATH}"),
            None => PATH.to_owned(),
        }
    }

    /// The environment of every program: nothing of the caller's, and then what the plan gives.
    pub(crate) fn env(&self, plan: &Plan) -> Vec<(String, String)> {
        let path = self.path();
        let mut env: Vec<(String, String)> = [
            ("PATH", path.as_str()),
            ("HOME", plan.home()),
            ("USER", "nobody"),
            ("LOGNAME", "nobody"),
            ("LANG", "C.UTF-8"),
            // Unbuffered, so that the output of a killed run is not lost.
            ("PYTHONUNBUFFERED", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        if let Some(folder) = &self.virtual_env {
            env.push(("VIRTUAL_ENV".into(), folder.clone()));
        }
        for (name, value) in plan.env() {
            env.retain(|(other, _)| other != name);
            env.push((name.clone(), value.clone()));
        }
        env
    }
}

pub(crate) fn find(plan: &Plan) -> Result<FoundInterpreters> {
    let mut found = FoundInterpreters::default();
    let root = plan.rootfs();
    let root = root.map_or(Path::new("/"), |rootfs| rootfs.source.as_path());
    for (language, names) in [
        (
            Language::Bash,
            ["usr/bin/bash", "bin/bash", "usr/local/bin/bash"],
        ),
        (
            Language::Node,
            ["usr/bin/node", "usr/local/bin/node", "usr/bin/nodejs"],
        ),
        (
            Language::Python,
            ["usr/bin/python3", "usr/local/bin/python3", "usr/bin/python"],
        ),
    ] {
        // A link in a given root may point to a path that exists only inside it.
        let there = |name: &&&str| fs::symlink_metadata(root.join(name)).is_ok();
        if let Some(name) = names.iter().find(there) {
            found.interpreters.set(language, format!("/{name}"));
        }
    }
    if let Some(given) = plan.python() {
        use_python(&mut found, &given.program, &given.roots);
        let virtual_env = given.virtual_env.as_ref();
        found.virtual_env = virtual_env.map(|folder| folder.display().to_string());
    } else if plan.rootfs().is_none()
        && found.interpreters.get(Language::Python).is_none()
        && let Some((program, prefix)) = python_in_path()
    {
        let roots = match prefix.starts_with("/usr") {
            true => Vec::new(),
            false => vec![plan.may_show(&prefix)?],
        };
        use_python(&mut found, &program, &roots);
    }
    Ok(found)
}

/// Makes a Python available in the sandbox. The mounts that it needs were checked.
fn use_python(found: &mut FoundInterpreters, program: &Path, roots: &[CheckedMount]) {
    if !program.starts_with("/usr") {
        found.first = program.parent().map(|bin| bin.display().to_string());
    }
    let program = program.display().to_string();
    found.interpreters.set(Language::Python, program);
    found.folders.extend_from_slice(roots);
}

/// The `python3` on the caller's PATH: program and prefix. PATH only says which known installation is
/// preferred. Nothing is run to find out: it would run outside, and code may have written it.
fn python_in_path() -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .find_map(|folder| {
            let named = brig_sandbox::follow(&folder.join("python3")).ok()?;
            let program = match named.parent() {
                Some(folder) if folder.ends_with("shims") => managed(folder.parent()?)?,
                _ => named,
            };
            let bin = program.parent().filter(|folder| folder.ends_with("bin"))?;
            let prefix = bin.parent()?.to_owned();
            let known = prefix.starts_with("/usr") || is_installation(&prefix);
            (program.is_file() && known).then_some((program, prefix))
        })
}

/// The Python behind the shim of a version manager (pyenv, asdf, mise): the user's version, or the newest.
fn managed(manager: &Path) -> Option<PathBuf> {
    let set = std::env::var("PYENV_VERSION").ok().or_else(|| {
        brig_input::read_unlinked(manager.join("version"), LARGEST)
            .ok()
            .and_then(|text| text.split_whitespace().next().map(str::to_owned))
    });
    let entries = ["versions", "installs/python"]
        .into_iter()
        .flat_map(|place| fs::read_dir(manager.join(place)))
        .flatten()
        .flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| {
            let program = brig_sandbox::follow(&entry.path().join("bin/python3")).ok()?;
            let name = entry.file_name().into_string().ok()?;
            let numbers: Option<Vec<u32>> = name.split('.').map(|part| part.parse().ok()).collect();
            Some(((Some(name) == set, numbers), program))
        })
        .max()
        .map(|(_, program)| program)
}
