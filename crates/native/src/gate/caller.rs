//! Whoever asks: what it says, and what the kernel knows about it.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use brig_linux::notify::{Call, read_memory};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

/// Arguments that are read, and bytes of each.
const ARGUMENTS: usize = 64;
const LONGEST: usize = 1024;
const PAGE: u64 = 4096;

/// A program that is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As it was written.
    pub program: String,
    pub place: Place,
    pub arguments: Vec<String>,
}

/// What a program that was asked for turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Inside, without links.
    File(PathBuf),
    Missing,
    Unknown,
}

impl Place {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Place::File(path) => Some(path),
            Place::Missing | Place::Unknown => None,
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

    /// The file that it runs, as the kernel has it.
    pub fn program(self) -> Option<PathBuf> {
        std::fs::read_link(self.proc("exe")).ok()
    }

    /// Its process, and the process above.
    pub fn family(thread: u32) -> Option<(u32, u32)> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Some((number("Tgid:")?, number("PPid:")?))
    }

    /// What it was started with.
    pub fn arguments(self) -> Vec<String> {
        let text = std::fs::read(self.proc("cmdline")).unwrap_or_default();
        let words = text.split(|byte| *byte == 0).take(ARGUMENTS);
        let words = words.map(|word| &word[..word.len().min(LONGEST)]);
        let mut words: Vec<String> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        if words.last().is_some_and(String::is_empty) {
            words.pop();
        }
        words
    }

    pub fn kill(self) {
        let process = Pid::from_raw(self.0 as i32);
        let process =
            process.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(process) = process {
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
        }
    }

    pub fn asked(self, call: &Call) -> io::Result<Asked> {
        let Call::Exec {
            folder,
            path,
            arguments,
            empty_path,
        } = *call
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let path = self.text(path, PAGE as usize)?;
        let place = self.place(folder, &path, empty_path);
        let mut program = String::from_utf8_lossy(&path).into_owned();
        if let (true, Some(found)) = (program.is_empty(), place.path()) {
            program = found.display().to_string();
        }
        Ok(Asked {
            program,
            place,
            arguments: self.words(arguments),
        })
    }

    fn words(self, mut at: u64) -> Vec<String> {
        let mut words = Vec::new();
        while words.len() < ARGUMENTS && at != 0 {
            let mut pointer = [0; 8];
            match read_memory(self.0, at, &mut pointer) {
                Ok(8) => {}
                _ => break,
            }
            let pointer = u64::from_ne_bytes(pointer);
            if pointer == 0 {
                break;
            }
            let Ok(word) = self.text(pointer, LONGEST) else {
                break;
            };
            words.push(String::from_utf8_lossy(&word).into_owned());
            at += 8;
        }
        words
    }

    /// Memory up to a zero byte, page by page: the next may not be there.
    fn text(self, mut at: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < most {
            let to_page = (PAGE - at % PAGE) as usize;
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

    fn place(self, folder: Option<i32>, path: &[u8], empty_path: bool) -> Place {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let base = match folder {
            Some(number) => self.proc(&format!("fd/{number}")),
            None => self.proc("cwd"),
        };
        if path.is_empty() {
            return match std::fs::read_link(base) {
                Ok(found) if empty_path => Place::File(found),
                _ => Place::Missing,
            };
        }
        let path = Path::new(OsStr::from_bytes(path));
        if path.is_absolute() {
            return self.find(path);
        }
        match std::fs::read_link(base) {
            Ok(base) => self.find(&base.join(path)),
            Err(_) => Place::Unknown,
        }
    }

    /// Where a path inside leads.
    pub fn find(self, path: &Path) -> Place {
        if let Some(place) = self.own(path) {
            return place;
        }
        match self.look(path) {
            Ok(found) => Place::File(found),
            Err(Errno::NOENT | Errno::NOTDIR) => Place::Missing,
            Err(_) => Place::Unknown,
        }
    }

    /// Paths that mean something else to everyone who follows them: `self` is whoever asks, and
    /// not us.
    fn own(self, path: &Path) -> Option<Place> {
        let places = [
            ("/proc/self", ""),
            ("/proc/thread-self", ""),
            ("/dev/fd", "fd"),
            ("/dev/stdin", "fd/0"),
        ];
        let mut below = places.iter().filter_map(|(place, file)| {
            let rest = path.strip_prefix(place).ok()?;
            Some(Path::new(file).join(rest))
        });
        let below = below.next()?;
        let mut parts = below.components();
        let mut link = PathBuf::from(parts.next()?.as_os_str());
        if link.as_os_str() == "fd" {
            link.push(parts.next()?);
        }
        let rest = parts.as_path();
        let whole = rest.as_os_str().is_empty();
        let target = match link.to_str() {
            Some("root") => PathBuf::from("/"),
            Some(link) => match std::fs::read_link(self.proc(link)) {
                Ok(target) if target.is_absolute() => target,
                _ => return Some(Place::Unknown),
            },
            None => return Some(Place::Unknown),
        };
        Some(match whole {
            true => Place::File(target),
            false => self.find(&target.join(rest)),
        })
    }

    fn look(self, path: &Path) -> Result<PathBuf, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.proc("root"), flags | OFlags::DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?;
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        std::fs::read_link(link).map_err(|_| Errno::IO)
    }

    fn proc(self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0)
    }
}
