//! Where a program of the host is, and what interprets it. Nothing is run to find that out.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Of the first line of a script, in bytes.
const LONGEST_LINE: u64 = 4096;

/// The files of that name that can be executed, in the order of the directories. An entry of `PATH` that is not
/// absolute means the current directory, where anybody may have put a file, so it is left out.
pub fn find<'a>(
    name: &'a str,
    directories: impl IntoIterator<Item = PathBuf> + 'a,
) -> impl Iterator<Item = PathBuf> + 'a {
    let absolute = directories.into_iter().filter(|one| one.is_absolute());
    let files = absolute.map(move |directory| directory.join(name));
    files.filter(|path| is_executable(path))
}

/// Whether a path leads to a file that can be executed.
pub fn is_executable(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The program that the first line of a script names. `directories`: where `env` looks for it.
pub fn interpreter(
    script: &Path,
    directories: impl IntoIterator<Item = PathBuf>,
) -> Option<PathBuf> {
    let mut start = Vec::new();
    let file = script.is_file().then(|| File::open(script).ok())??;
    file.take(LONGEST_LINE).read_to_end(&mut start).ok()?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let program = PathBuf::from(words.next()?);
    if program.file_name().is_some_and(|name| name == "env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return match name.contains('/') {
            true => Some(Path::new("/").join(name)),
            false => find(name, directories).next(),
        };
    }
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_absolute_directories_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("tool");
        std::fs::write(&script, "#!/usr/bin/env -S x=y sh -e\n").expect("written");
        let in_it = || [PathBuf::from("."), directory.path().to_owned()];
        assert_eq!(find("tool", in_it()).next(), None, "not executable");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("mode");
        assert_eq!(find("tool", in_it()).next().as_ref(), Some(&script));
        assert_eq!(find("tool", ["".into(), ".".into()]).next(), None);
        let system = || [PathBuf::from("/bin")];
        assert_eq!(interpreter(&script, system()), Some("/bin/sh".into()));
        std::fs::write(&script, "#! /opt/x -e\n").expect("written");
        assert_eq!(interpreter(&script, system()), Some("/opt/x".into()));
        std::fs::write(&script, "true\n").expect("written");
        assert_eq!(interpreter(&script, system()), None);
    }
}
