//! What the kernel starts for a script: the interpreter of its `#!` line, with changed arguments.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::resolve::{BEGINNING, NOT_REGULAR};
use crate::{ARGUMENTS, Caller, FileId, RequestedProgram, ResolvedPath, shown};

/// The kernel's own limit for interpreters that are scripts themselves.
const DEPTH: usize = 5;

impl Caller {
    /// The interpreters that the kernel would use to start a file, each of which may be a script
    /// itself. Empty for a binary. `None` if one of them can't be read, unless `is_known` accepts it:
    /// a known interpreter ends the search.
    pub fn interpreters(
        self,
        requested: &RequestedProgram,
        is_known: impl Fn(Option<FileId>) -> bool,
    ) -> Option<Vec<RequestedProgram>> {
        let mut found = Vec::new();
        let (mut resolved, mut file) = (requested.resolved.clone(), requested.file);
        while found.len() < DEPTH {
            let (path, id) = match (&resolved, file) {
                (ResolvedPath::File(path), Some(id)) => (path, id),
                // The kernel does not find it either.
                (ResolvedPath::Missing(_), _) => break,
                _ => return None,
            };
            let start = match self.beginning(path, id) {
                Ok(start) => start,
                Err(NOT_REGULAR) => break,
                Err(_) => return None,
            };
            let Some((name, _)) = first_line(&start) else {
                break;
            };
            let link = Path::new(OsStr::from_bytes(&name));
            (resolved, file) = self.find_file(link);
            found.push(RequestedProgram {
                program: String::from_utf8_lossy(&name).into_owned(),
                resolved: resolved.clone(),
                file,
                arguments: Vec::new(),
            });
            if is_known(file) {
                break;
            }
        }
        Some(found)
    }

    /// Whether the running program is the one that the kernel starts for the requested script: the
    /// interpreter of its first line, with the arguments that follow from it.
    pub(crate) fn runs_script(self, requested: &RequestedProgram, runs: FileId) -> bool {
        self.script(requested, runs).is_some()
    }

    fn script(self, requested: &RequestedProgram, runs: FileId) -> Option<()> {
        let mut name = self.started_by()?;
        let (mut resolved, mut file) = (requested.resolved.clone(), requested.file?);
        if String::from_utf8_lossy(&name) != requested.program {
            // A script that was started by its descriptor has `/dev/fd/N` as its name.
            let by_descriptor = name.starts_with(b"/dev/fd/");
            let same = || self.find_file(Path::new(OsStr::from_bytes(&name))).1 == Some(file);
            (by_descriptor && same()).then_some(())?;
        }
        let mut front: Vec<String> = Vec::new();
        for _ in 0..DEPTH {
            let ResolvedPath::File(path) = &resolved else {
                return None;
            };
            let start = self.beginning(path, file).ok()?;
            let (interpreter, argument) = first_line(&start)?;
            // The kernel replaces the first argument with the interpreter and the script's name.
            let mut words = vec![shown(&interpreter)];
            words.extend(argument.map(|argument| shown(&argument)));
            words.push(shown(&name));
            words.extend(front.into_iter().skip(1));
            front = words;
            let (next, found) = self.find_file(Path::new(OsStr::from_bytes(&interpreter)));
            (name, resolved, file) = (interpreter, next, found?);
            if file == runs {
                front.extend(requested.arguments.iter().skip(1).cloned());
                front.truncate(ARGUMENTS);
                return (self.arguments() == front).then_some(());
            }
        }
        None
    }
}

/// The interpreter in a script's first line and its optional argument, parsed as the kernel does.
fn first_line(start: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    // The kernel pads a shorter file with zeros.
    let mut all = [0; BEGINNING];
    all[..start.len()].copy_from_slice(start);
    let text = all.strip_prefix(b"#!")?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trim = |text: &[u8]| -> Vec<u8> {
        let from = text.iter().position(|byte| !blank(byte));
        text[from.unwrap_or(text.len())..].to_vec()
    };
    let to_zero = |text: Vec<u8>| -> Vec<u8> {
        let words = text.split(|byte| *byte == 0).next();
        words.unwrap_or_default().to_vec()
    };
    // Without a newline, the kernel cuts off the last byte.
    let line = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => &text[..end],
        None => &text[..text.len() - 1],
    };
    let end = line.iter().rposition(|byte| !blank(byte))? + 1;
    let line = trim(&line[..end]);
    let name_ends = line.iter().position(|byte| blank(byte) || *byte == 0);
    let (name, rest) = line.split_at(name_ends.unwrap_or(line.len()));
    let argument = match rest.first() {
        None | Some(0) => None,
        Some(_) => Some(to_zero(trim(rest))),
    };
    (!name.is_empty()).then(|| (name.to_vec(), argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read_as_the_kernel_does() {
        let long = format!("#!/bin/sh {}", "x".repeat(300));
        let cut = "x".repeat(BEGINNING - 1 - "#!/bin/sh ".len());
        for (text, name, argument) in [
            ("#!/bin/sh\necho", "/bin/sh", None),
            ("#! \t/bin/sh  -e x \t\n", "/bin/sh", Some("-e x")),
            ("#!/bin/sh", "/bin/sh", None),
            ("#!/bin/sh -e ", "/bin/sh", Some("-e ")),
            ("#!/bin/sh \n", "/bin/sh", None),
            ("#!/bin/sh\0 -e\n", "/bin/sh", None),
            (&long, "/bin/sh", Some(cut.as_str())),
        ] {
            let argument = argument.map(|argument| argument.as_bytes().to_vec());
            let start = &text.as_bytes()[..text.len().min(BEGINNING)];
            let expected = Some((name.as_bytes().to_vec(), argument));
            assert_eq!(first_line(start), expected, "{text:?}");
        }
        for text in ["", "#", "#!\n/bin/sh", "#! \t\n", "\x7fELF"] {
            assert_eq!(first_line(text.as_bytes()), None, "{text:?}");
        }
    }

    /// What runs for a script, and what does not.
    #[test]
    fn a_script_runs_as_its_interpreter_with_its_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a script");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("its mode");
            path.to_str().expect("text").to_owned()
        };
        let inner = make("inner", "#!/bin/sh -e\necho; read x\n".into());
        let outer = make("outer", format!("#!{inner} more\n"));
        for path in [&inner, &outer] {
            let mut child = std::process::Command::new(path)
                .args(["one", "two"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("a child");
            let stdout = child.stdout.as_mut().expect("a pipe");
            std::io::Read::read_exact(stdout, &mut [0]).expect("it runs");
            let caller = Caller::new(child.id());
            let runs = caller.program_file().expect("a file");
            let requested = |path: &str, words: &[&str]| {
                let (resolved, file) = caller.find_file(Path::new(path));
                RequestedProgram {
                    program: path.to_owned(),
                    resolved,
                    file,
                    arguments: words.iter().map(|word| (*word).to_owned()).collect(),
                }
            };
            let names = |path: &str| -> Vec<String> {
                let all = caller
                    .interpreters(&requested(path, &[]), |_| false)
                    .expect("readable");
                all.into_iter().map(|one| one.program).collect()
            };
            assert_eq!(names(&inner), ["/bin/sh"]);
            assert_eq!(names(&outer), [&inner, "/bin/sh"]);
            assert!(names("/bin/sh").is_empty() && names("/bin").is_empty());
            assert!(caller.runs_script(&requested(path, &["x", "one", "two"]), runs));
            assert!(!caller.runs_script(&requested(path, &["x", "one"]), runs));
            assert!(!caller.runs_script(&requested(path, &["x", "one", "other"]), runs));
            let other = [&inner, &outer].into_iter().find(|other| *other != path);
            let other = requested(other.expect("another"), &["x", "one", "two"]);
            assert!(!caller.runs_script(&other, runs));
            let cat = caller.file_at(Path::new("/bin/cat")).expect("a program");
            assert!(!caller.runs_script(&requested(path, &["x", "one", "two"]), cat));
            drop(child.stdin.take());
            child.wait().expect("its end");
        }
    }
}
