//! Finding the interpreters: the system's own, one that was given, or the one that a shim in a
//! home folder stands for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use brig_sandbox::link::Interpreters;
use brig_sandbox::{Error, Language, Plan, Result};

use crate::backend::WORKSPACE;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Interpreters by their path inside, and folders of the host that they need there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    interpreters: Interpreters,
    folders: Vec<String>,
    /// Comes first in PATH.
    first: Option<String>,
    virtual_env: Option<String>,
}

impl Found {
    pub fn in_sandbox(&self) -> Interpreters {
        self.interpreters.clone()
    }

    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().map(String::as_str)
    }

    /// Where programs are looked for, unless the plan says otherwise.
    pub fn path(&self) -> String {
        match &self.first {
            Some(first) => format!("{first}:{PATH}"),
            None => PATH.to_owned(),
        }
    }

    /// The environment of every program: nothing of the caller's, and then what the plan gives.
    pub fn env(&self, plan: &Plan) -> Vec<(String, String)> {
        let path = self.path();
        let mut env: Vec<(String, String)> = [
            ("PATH", path.as_str()),
            ("HOME", WORKSPACE),
            ("USER", "nobody"),
            ("LOGNAME", "nobody"),
            ("LANG", "C.UTF-8"),
            // Output of a run that is cut short is still worth seeing.
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

pub fn find(plan: &Plan) -> Result<Found> {
    let mut found = Found::default();
    let root = plan.rootfs().map_or(Path::new("/"), PathBuf::as_path);
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
        given_python(&mut found, plan, given)?;
    } else if plan.rootfs().is_none()
        && found.interpreters.get(Language::Python).is_none()
        && let Some((program, prefix)) = shimmed_python()
    {
        use_python(&mut found, plan, program.clone(), prefix)?;
    }
    Ok(found)
}

/// An interpreter, or a virtual environment.
fn given_python(found: &mut Found, plan: &Plan, given: &Path) -> Result<()> {
    let refuse = |problem: String| Error::NoInterpreter {
        language: "python",
        problem,
    };
    let given = fs::canonicalize(given.parent().unwrap_or(given))
        .map(|parent| parent.join(given.file_name().unwrap_or_default()))
        .map_err(|error| refuse(format!("`{}`: {error}", given.display())))?;
    let program = if given.is_dir() {
        given.join("bin/python3")
    } else {
        given
    };
    let real = fs::canonicalize(&program)
        .map_err(|error| refuse(format!("`{}`: {error}", program.display())))?;
    let prefix = prefix_of(&program);
    let config = fs::read_to_string(prefix.join("pyvenv.cfg")).unwrap_or_default();
    let home = config
        .lines()
        .filter_map(|line| line.split_once('='))
        .find_map(|(key, value)| (key.trim() == "home").then(|| PathBuf::from(value.trim())));
    let Some(home) = home else {
        // A link to an interpreter says nothing about the folder that the link lies in.
        let prefix = prefix_of(&real);
        return use_python(found, plan, real, &prefix);
    };
    found.virtual_env = Some(prefix.display().to_string());
    use_python(found, plan, program, &prefix)?;
    add_folder(found, plan, home.parent().unwrap_or(&home))
}

/// The folder above `bin`.
fn prefix_of(program: &Path) -> PathBuf {
    let above = program.parent().and_then(Path::parent);
    above.unwrap_or(Path::new("/")).to_owned()
}

fn use_python(found: &mut Found, plan: &Plan, program: PathBuf, prefix: &Path) -> Result<()> {
    if !prefix.starts_with("/usr") {
        found.first = program.parent().map(|bin| bin.display().to_string());
    }
    let program = program.display().to_string();
    found.interpreters.set(Language::Python, program);
    add_folder(found, plan, prefix)
}

/// Shows a folder of the host to the sandbox, if it is harmless: what names it may be a file that
/// an earlier run has written.
fn add_folder(found: &mut Found, plan: &Plan, folder: &Path) -> Result<()> {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let text = folder.display().to_string();
    if !folder.starts_with("/usr") && !found.folders.contains(&text) {
        plan.may_show(&folder)?;
        found.folders.push(text);
    }
    Ok(())
}

/// What `python3` on the caller's PATH really is: program and prefix. Asked once, because asking
/// means running it.
fn shimmed_python() -> Option<&'static (PathBuf, PathBuf)> {
    static FOUND: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let question = "import os,sys;print(os.path.realpath(sys.executable));\
                print(os.path.realpath(sys.base_prefix))";
            // Not by a relative entry, and not from this folder: what lies there may be anyone's.
            let program = std::env::split_paths(&std::env::var_os("PATH")?)
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join("python3"))
                .find(|program| program.is_file())?;
            let output = Command::new(program)
                .args(["-I", "-c", question])
                .current_dir("/")
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            let mut lines = text.lines().map(PathBuf::from);
            Some((lines.next()?, lines.next()?)).filter(|_| output.status.success())
        })
        .as_ref()
}
