//! The process that starts a program: what it claims in its `execve`, and what the kernel reports
//! about it.

mod image;
mod loader;
mod resolve;
mod script;
mod starts;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use brig_linux::notify::{Call, read_memory};
use brig_linux::process_stat::{read_proc, read_proc_text};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

/// How many arguments are recorded, and how many bytes of each.
const ARGUMENTS: usize = 64;
const LONGEST: usize = 1024;
const PAGE: usize = 4096;
/// More than the kernel passes to any program.
const ALL_ARGUMENTS: u64 = 16 * 1024 * 1024;

pub use image::{Image, RunningProgram, check_random_addresses};
pub use loader::Loaded;
pub use starts::{PendingStart, PendingStarts, StartResult};

/// A program that a process wants to start.
#[derive(Clone, Debug)]
pub struct RequestedProgram {
    /// As the caller wrote it.
    pub program: String,
    pub resolved: ResolvedPath,
    /// Identifies the file under any name.
    pub file: Option<FileId>,
    pub arguments: Vec<String>,
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) u64, pub(crate) u64);

impl FileId {
    /// Of a path as this process sees it.
    pub fn of(path: &str) -> Option<Self> {
        let stat = rustix::fs::stat(path).ok()?;
        Some(Self(stat.st_dev, stat.st_ino))
    }
}

/// What the path of a requested program leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedPath {
    /// A path in the caller's root, without links.
    File(PathBuf),
    /// Nothing is there. The kernel would return this error.
    Missing(Errno),
    /// It can't be resolved from this process.
    Unknown,
}

impl ResolvedPath {
    pub fn path(&self) -> Option<&Path> {
        match self {
            ResolvedPath::File(path) => Some(path),
            ResolvedPath::Missing(_) | ResolvedPath::Unknown => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Caller(u32);

impl Caller {
    pub fn new(thread: u32) -> Self {
        Self(thread)
    }

    pub fn thread(self) -> u32 {
        self.0
    }

    /// The file that it runs, as the kernel reports it.
    pub fn program(self) -> Option<PathBuf> {
        std::fs::read_link(self.proc("exe")).ok()
    }

    pub fn program_file(self) -> Option<FileId> {
        FileId::of(&self.proc("exe"))
    }

    /// The file at a path in the caller's root.
    pub fn file_at(self, path: &Path) -> Option<FileId> {
        self.find_file(path).1
    }

    /// The id of a thread's process, and that of its parent process.
    pub fn process_and_parent(thread: u32) -> Option<(u32, u32)> {
        let status = read_proc_text(format!("/proc/{thread}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Some((number("Tgid:")?, number("PPid:")?))
    }

    /// Its arguments, cut to what a record contains.
    pub fn arguments(self) -> Vec<String> {
        let text = read_proc(self.proc("cmdline")).unwrap_or_default();
        let words = text.split_inclusive(|byte| *byte == 0).take(ARGUMENTS);
        words
            .map(|word| shown(word.strip_suffix(&[0]).unwrap_or(word)))
            .collect()
    }

    /// All of its arguments. `None` if they can't be read completely.
    pub fn all_arguments(self) -> Option<Vec<OsString>> {
        let file = std::fs::File::open(self.proc("cmdline")).ok()?;
        let mut text = Vec::new();
        let read = file.take(ALL_ARGUMENTS).read_to_end(&mut text).ok()? as u64;
        if read == 0 || read == ALL_ARGUMENTS {
            return None;
        }
        let words = text.split_inclusive(|byte| *byte == 0);
        let words = words.map(|word| word.strip_suffix(&[0]).unwrap_or(word).to_vec());
        Some(words.map(OsString::from_vec).collect())
    }

    /// Kills the process that had this start time. Another process may have its id by now, also one outside of the
    /// sandbox.
    pub fn kill(self, start_time: Option<u64>) {
        let open = |number: u32| {
            let number = Pid::from_raw(i32::try_from(number).ok()?)?;
            rustix::process::pidfd_open(number, PidfdFlags::empty()).ok()
        };
        // A pidfd can only be opened for the first thread of a process.
        let process = open(self.0).or_else(|| open(Caller::process_and_parent(self.0)?.0));
        // Read after opening, so that it is that of the opened process.
        if let Some(process) = process
            && start_time.is_some()
            && self.start_time() == start_time
        {
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
        }
    }

    /// The program that this call would start.
    pub fn requested(self, call: &Call) -> io::Result<RequestedProgram> {
        let Call::Exec {
            directory,
            path,
            arguments,
            empty_path,
        } = *call
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let path = self.text(path, PAGE)?;
        let (resolved, file) = self.resolve(directory, &path, empty_path);
        let mut program = String::from_utf8_lossy(&path).into_owned();
        if let (true, Some(found)) = (program.is_empty(), resolved.path()) {
            program = found.display().to_string();
        }
        Ok(RequestedProgram {
            program,
            resolved,
            file,
            arguments: self.words(arguments),
        })
    }

    fn words(self, at: u64) -> Vec<String> {
        let mut words = Vec::new();
        if at == 0 {
            return words;
        }
        for pointer in self.pointers(at) {
            let Ok(word) = self.text(pointer, LONGEST) else {
                break;
            };
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        words
    }

    /// Pointers up to a null pointer.
    fn pointers(self, mut at: u64) -> Vec<u64> {
        let mut pointers = Vec::new();
        while pointers.len() < ARGUMENTS {
            let most = 8 * (ARGUMENTS - pointers.len());
            // A pointer that crosses a page boundary is read by itself.
            let to_page = to_page_end(at).max(8);
            let mut part = vec![0; most.min(to_page - to_page % 8)];
            let read = read_memory(self.0, at, &mut part).unwrap_or(0);
            let (whole, _) = part[..read].as_chunks::<8>();
            for pointer in whole {
                match u64::from_ne_bytes(*pointer) {
                    0 => return pointers,
                    pointer => pointers.push(pointer),
                }
            }
            if read < part.len() {
                break;
            }
            at += read as u64;
        }
        pointers
    }

    /// Memory up to a zero byte, page by page, because the next page may not be mapped.
    fn text(self, mut at: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < most {
            let to_page = to_page_end(at);
            let mut part = vec![0; to_page.min(most - text.len()).min(512)];
            let read = read_memory(self.0, at, &mut part)?;
            if read == 0 {
                break;
            }
            if let Some(end) = part[..read].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&part[..end]);
                break;
            }
            text.extend_from_slice(&part[..read]);
            at += read as u64;
        }
        Ok(text)
    }

    fn proc(self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0)
    }
}

/// How many bytes are left of the page of an address.
fn to_page_end(address: u64) -> usize {
    PAGE - usize::try_from(address % PAGE as u64).unwrap_or(0)
}

/// An argument as it is compared and recorded.
fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(LONGEST)]).into_owned()
}
