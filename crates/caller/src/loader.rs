//! The dynamic loader of a C library (`ld.so`), which runs the file that its arguments name.
//!
//! The `goblin` and `object` crates parse whole ELF files. Here a hostile file is checked for one
//! property, with a bounded read of two tables.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;

use crate::{Caller, RequestedProgram, ResolvedPath};

/// The file that a loader would run.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub file: RequestedProgram,
    /// Whether the file was determined. A name without a slash is looked up in the library search
    /// path, which may be anything.
    pub known: bool,
}

/// Recognises a loader by its name. The C library of musl is its own loader.
fn has_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        let loader = name.starts_with("ld") && name.contains(".so");
        loader || name == "libc.so" || name.starts_with("libc.musl-")
    })
}

impl Caller {
    /// Whether the requested program is a loader, under any name.
    pub fn requests_loader(self, requested: &RequestedProgram) -> bool {
        let file = requested.resolved.path().zip(requested.file);
        has_name(Path::new(&requested.program))
            || file.is_some_and(|(path, id)| {
                let opened = self.open(path, id).map(File::from);
                has_name(path) || opened.is_ok_and(|file| is_loader_elf(&file).unwrap_or(false))
            })
    }

    /// Whether it runs a loader. A program that can't be read counts as one.
    pub fn runs_loader(self, program: &Path) -> bool {
        if has_name(program) {
            return true;
        }
        match File::open(self.proc("exe")) {
            Ok(file) => is_loader_elf(&file).unwrap_or(false),
            Err(error) => Errno::from_io_error(&error) == Some(Errno::ACCESS),
        }
    }

    /// What a loader with these arguments would run.
    pub fn loads<'a>(self, words: impl Iterator<Item = &'a OsStr>) -> Option<Loaded> {
        let path = Path::new(program_argument(words)?);
        let (resolved, file) = self.find_file(path);
        let bare = path.parent() == Some(Path::new(""));
        let known = !bare && resolved != ResolvedPath::Unknown;
        let file = RequestedProgram {
            program: path.to_string_lossy().into_owned(),
            resolved,
            file,
            arguments: Vec::new(),
        };
        Some(Loaded { file, known })
    }
}

/// Recognises a loader by its ELF headers: a shared object with an entry point, but without a loader
/// of its own. A static PIE program looks the same, but is flagged as a program (`DF_1_PIE`).
fn is_loader_elf(file: &File) -> io::Result<bool> {
    const SHARED: u16 = 3;
    const DYNAMIC: u32 = 2;
    const INTERPRETER: u32 = 3;
    const FLAGS: u64 = 0x6fff_fffb;
    const PROGRAM: u64 = 0x0800_0000;
    /// Size of a program header.
    const SIZE: usize = 56;
    /// More entries than the tables of any loader have.
    const MOST: usize = 256;

    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let wide = head.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]);
    if !wide || short(16) != SHARED || long(&head, 24) == 0 || usize::from(short(54)) != SIZE {
        return Ok(false);
    }
    let mut table = vec![0; SIZE * usize::from(short(56)).min(MOST)];
    file.read_exact_at(&mut table, long(&head, 32))?;
    let (entries, _) = table.as_chunks::<SIZE>();
    let kind = |entry: &[u8; SIZE]| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
    if entries.iter().any(|entry| kind(entry) == INTERPRETER) {
        return Ok(false);
    }
    let Some(dynamic) = entries.iter().find(|entry| kind(entry) == DYNAMIC) else {
        return Ok(false);
    };
    let size = usize::try_from(long(dynamic, 32)).unwrap_or(usize::MAX);
    let mut dynamic_table = vec![0; size.min(16 * MOST)];
    file.read_exact_at(&mut dynamic_table, long(dynamic, 8))?;
    let (pairs, _) = dynamic_table.as_chunks::<16>();
    let program = |pair: &[u8; 16]| long(pair, 0) == FLAGS && long(pair, 8) & PROGRAM != 0;
    Ok(!pairs.iter().any(program))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The first argument that is neither an option nor the value of one.
fn program_argument<'a>(words: impl Iterator<Item = &'a OsStr>) -> Option<&'a OsStr> {
    let mut words = words.skip(1);
    loop {
        let word = words.next()?;
        match word.as_encoded_bytes() {
            b"--library-path"
            | b"--preload"
            | b"--audit"
            | b"--argv0"
            | b"--inhibit-rpath"
            | b"--glibc-hwcaps-prepend"
            | b"--glibc-hwcaps-mask" => drop(words.next()),
            b"--" => return words.next(),
            option if option.starts_with(b"--") => {}
            _ => return Some(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(words: &[&str]) -> Option<Loaded> {
        Caller::new(std::process::id()).loads(words.iter().map(OsStr::new))
    }

    #[test]
    fn a_loader_runs_the_first_word_that_is_no_option() {
        for words in [
            &["ld.so", "/bin/sh", "x"][..],
            &["ld.so", "--argv0", "y", "--verify", "/bin/sh"],
            &["ld.so", "--list", "--", "/bin/sh"],
        ] {
            let loaded = loads(words).expect("a file");
            assert_eq!(loaded.file.program, "/bin/sh", "{words:?}");
            assert!(loaded.known && loaded.file.file.is_some(), "{words:?}");
        }
        for words in [&["ld.so"][..], &["ld.so", "--argv0", "x"], &[]] {
            assert!(loads(words).is_none(), "{words:?}");
        }
        assert!(loads(&["ld.so", "sh"]).is_some_and(|loaded| !loaded.known));
    }

    #[test]
    fn a_loader_is_known_by_its_form() {
        let own = Caller::new(std::process::id());
        let folder = tempfile::tempdir().expect("a directory");
        let requested = |path: &Path| {
            let (resolved, file) = own.find_file(path);
            RequestedProgram {
                program: path.display().to_string(),
                resolved,
                file,
                arguments: Vec::new(),
            }
        };
        let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];
        for loader in loaders
            .map(Path::new)
            .into_iter()
            .filter(|path| path.exists())
        {
            let copy = folder.path().join("copy");
            std::fs::copy(loader, &copy).expect("a copy");
            assert!(own.requests_loader(&requested(&copy)), "{loader:?}");
        }
        let this = std::env::current_exe().expect("this program");
        for program in [
            Path::new("/bin/sh"),
            &this,
            Path::new("/"),
            Path::new("/etc/passwd"),
        ] {
            assert!(!own.requests_loader(&requested(program)), "{program:?}");
        }
        assert!(!own.runs_loader(&this));
    }

    #[test]
    fn a_loader_is_known_by_its_name() {
        for name in [
            "/lib64/ld-linux-x86-64.so.2",
            "/x/ld.so",
            "/lib/ld-musl-x86_64.so.1",
            "/usr/lib/x86_64-linux-musl/libc.so",
            "/lib/libc.musl-x86_64.so.1",
        ] {
            assert!(has_name(Path::new(name)), "{name}");
        }
        for name in ["/usr/bin/ld", "/lib/libc.so.6", "/"] {
            assert!(!has_name(Path::new(name)), "{name}");
        }
    }
}
