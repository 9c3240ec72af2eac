//! Where a script of the host is in the sandbox: in a directory that is mounted anyway, in its own
//! directory, which is then shown read-only, or nowhere: then only its text is sent.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brig_sandbox::config::MountSpec;
use brig_sandbox::{Language, SessionConfig, Work};

use crate::{backend, failure};

/// Where the directory of a script is mounted.
const TARGET: &str = "/script";

/// A directory with more entries than this is not shown unless asked for: it would have to be searched
/// for secrets at every run.
const MOST_ENTRIES: usize = 50_000;

/// How many entries are looked at to find a module or a program.
const LOOKED_AT: usize = 1000;

/// Directories of a home where files of all kinds are kept. A script that was just downloaded is not
/// shown what else was.
const PERSONAL: [&str; 8] = [
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
];

/// Decides where the script is, and adds the mount that this needs. Returns what the script is called.
pub(crate) fn place(
    file: &Path,
    work: &Work,
    flag: Option<bool>,
    backend: &str,
    config: &mut SessionConfig,
) -> Option<String> {
    let Work::Code { language, .. } = work else {
        return None;
    };
    let name = name(file)?;
    // As the interpreters do: a link to a script belongs to where the script is.
    let Ok(real) = brig_sandbox::follow(file) else {
        return Some(name);
    };
    let (Some(directory), Some(own)) = (real.parent(), real.file_name()) else {
        return Some(name);
    };
    if flag == Some(false) {
        return Some(name);
    }
    if let Some(path) = mounted(&real, config) {
        return Some(path);
    }
    if flag.is_none() {
        if !has_modules(directory, &real, *language) {
            return Some(name);
        }
        if let Err(problem) = may_show(directory, backend, config) {
            problem.tell(&name, directory);
            return Some(name);
        }
    }
    config.mounts.push(MountSpec {
        source: directory.to_owned(),
        target: TARGET.into(),
        writable: false,
    });
    failure::shown(&format!(
        "`{}`, read-only as {TARGET}, for `{name}` (--script-dir=false sends only the script)",
        directory.display()
    ));
    Some(format!("{TARGET}/{}", own.to_str()?))
}

/// The name of the file, as the code knows it.
pub(crate) fn name(file: &Path) -> Option<String> {
    Some(file.file_name()?.to_str()?.to_owned())
}

/// The path of the script in what the caller mounts.
fn mounted(real: &Path, config: &SessionConfig) -> Option<String> {
    let workspace = config.workspace.iter();
    let workspace = workspace.map(|source| (source.as_path(), Path::new("/workspace")));
    let mounts = config.mounts.iter();
    let mounts = mounts.map(|mount| (mount.source.as_path(), mount.target.as_path()));
    let path = workspace.chain(mounts).find_map(|(source, target)| {
        let source = brig_sandbox::follow(source).ok()?;
        let rest = real.strip_prefix(source).ok()?;
        // The script itself may be what is mounted.
        Some(match rest.as_os_str().is_empty() {
            true => target.to_owned(),
            false => target.join(rest),
        })
    })?;
    path.to_str().map(str::to_owned)
}

/// Why a directory is not shown without being asked for.
struct NotShown {
    why: String,
    /// Whether the flag would show it.
    flag: bool,
}

impl NotShown {
    fn tell(&self, name: &str, directory: &Path) {
        let (why, directory) = (&self.why, directory.display());
        failure::note(&format!(
            "only `{name}` is in the sandbox, without the files next to it: {why}"
        ));
        failure::hint(&match self.flag {
            true => format!("--script-dir shows `{directory}`, read-only"),
            false => "put the script into a directory of its own, or mount what it needs: \
                      -v DIRECTORY:/script"
                .to_owned(),
        });
    }
}

fn may_show(directory: &Path, backend: &str, config: &SessionConfig) -> Result<(), NotShown> {
    let by_flag = |why: &str| NotShown {
        why: why.into(),
        flag: true,
    };
    // In containers a mount has a price: its files need permissions for others, and programs get no
    // Unix sockets.
    if !backend::kind(backend).is_some_and(|kind| kind.mounts_scripts) {
        return Err(by_flag(
            "this backend mounts their directory only on request",
        ));
    }
    let target = Path::new(TARGET);
    let mut targets = config.mounts.iter().map(|mount| &mount.target);
    if targets.any(|other| other.starts_with(target)) {
        return Err(NotShown {
            why: format!("something else is mounted at {TARGET}"),
            flag: false,
        });
    }
    let home = std::env::var_os("HOME").and_then(|home| fs::canonicalize(home).ok());
    if home.is_some_and(|home| PERSONAL.iter().any(|name| directory == home.join(name))) {
        return Err(by_flag("their directory may contain private files"));
    }
    if has_more_entries(directory, MOST_ENTRIES) {
        let why = format!("their directory has more than {MOST_ENTRIES} entries");
        return Err(by_flag(&why));
    }
    match brig_sandbox::check_mount(directory, &config.show_secrets) {
        Ok(_) => Ok(()),
        Err(error) => Err(NotShown {
            why: error.to_string(),
            flag: false,
        }),
    }
}

/// Whether there is something beside a script that it may load or start.
fn has_modules(directory: &Path, script: &Path, language: Language) -> bool {
    let endings: &[&str] = match language {
        Language::Python => &["py", "so"],
        Language::Node => &["js", "cjs", "mjs", "json"],
        Language::Bash => &["sh", "bash"],
        _ => &[],
    };
    // What a shell script starts may have any name.
    let is_program = |path: &PathBuf| {
        language == Language::Bash
            && path
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
    };
    let is_module = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let named = ending.is_some_and(|ending| endings.contains(&ending));
        (named || is_program(path)) && path != script
    };
    let is_package = |path: &PathBuf| path.is_dir() && entries(path).any(|path| is_module(&path));
    let node_modules = (language == Language::Node).then(|| directory.join("node_modules"));
    let is_node_modules = |path: &PathBuf| node_modules.as_ref() == Some(path);
    entries(directory).any(|path| is_module(&path) || is_node_modules(&path) || is_package(&path))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        !name.starts_with(b".") && name != b"__pycache__"
    };
    entries
        .map(|entry| entry.path())
        .filter(visible)
        .take(LOOKED_AT)
}

fn has_more_entries(directory: &Path, most: usize) -> bool {
    let (mut left, mut seen) = (vec![directory.to_owned()], 0);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > most {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn entries_are_counted_no_further_than_needed() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir_all(outer.path().join("a/b")).unwrap();
        fs::write(outer.path().join("a/b/c"), "").unwrap();
        assert!(has_more_entries(outer.path(), 2));
        assert!(!has_more_entries(outer.path(), 3));
    }

    #[test]
    fn only_what_the_language_loads_counts_as_a_module() {
        let outer = tempfile::tempdir().unwrap();
        let script = outer.path().join("app.py");
        let found = |language| has_modules(outer.path(), &script, language);
        for file in ["app.py", "data.csv", ".hidden.py", "notes.pdf"] {
            fs::write(outer.path().join(file), "").unwrap();
        }
        assert!(!found(Language::Python) && !found(Language::Node));
        fs::create_dir(outer.path().join("package")).unwrap();
        assert!(!found(Language::Python));
        fs::write(outer.path().join("package/__init__.py"), "").unwrap();
        assert!(found(Language::Python) && !found(Language::Node));
        fs::create_dir(outer.path().join("node_modules")).unwrap();
        assert!(found(Language::Node) && !found(Language::Bash));
        let helper = outer.path().join("package/helper");
        fs::write(&helper, "").unwrap();
        assert!(!found(Language::Bash));
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(found(Language::Bash));
        fs::remove_file(&helper).unwrap();
        fs::write(outer.path().join("lib.sh"), "").unwrap();
        assert!(found(Language::Bash));
    }
}
