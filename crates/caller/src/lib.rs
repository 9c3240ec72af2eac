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
    /// Which file that is, under whatever name.
    pub file: Option<FileId>,
    pub arguments: Vec<String>,
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    fn of(path: &str) -> Option<Self> {
        let stat = rustix::fs::stat(path).ok()?;
        Some(Self(stat.st_dev, stat.st_ino))
    }
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

    /// Which file that is.
    pub fn program_file(self) -> Option<FileId> {
        FileId::of(&self.proc("exe"))
    }

    /// Which file a path inside is, without a look at what the path means to the caller.
    pub fn file_at(self, path: &Path) -> Option<FileId> {
        self.look(path).ok().map(|(_, file)| file)
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
        let (place, file) = self.place(folder, &path, empty_path);
        let mut program = String::from_utf8_lossy(&path).into_owned();
        if let (true, Some(found)) = (program.is_empty(), place.path()) {
            program = found.display().to_string();
        }
        Ok(Asked {
            program,
            place,
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

    /// Pointers up to one that is zero.
    fn pointers(self, mut at: u64) -> Vec<u64> {
        let mut pointers = Vec::new();
        while pointers.len() < ARGUMENTS {
            let most = 8 * (ARGUMENTS - pointers.len());
            // One that lies across two pages is read by itself.
            let to_page = ((PAGE - at % PAGE) as usize).max(8);
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

    fn place(self, folder: Option<i32>, path: &[u8], empty_path: bool) -> (Place, Option<FileId>) {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let base = match folder {
            Some(number) => self.proc(&format!("fd/{number}")),
            None => self.proc("cwd"),
        };
        if path.is_empty() {
            return match std::fs::read_link(&base) {
                Ok(found) if empty_path => (Place::File(found), FileId::of(&base)),
                _ => (Place::Missing, None),
            };
        }
        let path = Path::new(OsStr::from_bytes(path));
        if path.is_absolute() {
            return self.find_file(path);
        }
        match std::fs::read_link(base) {
            Ok(base) => self.find_file(&base.join(path)),
            Err(_) => (Place::Unknown, None),
        }
    }

    /// Where a path inside leads.
    pub fn find(self, path: &Path) -> Place {
        self.find_file(path).0
    }

    pub fn find_file(self, path: &Path) -> (Place, Option<FileId>) {
        if let Some(found) = self.own(path) {
            return found;
        }
        match self.look(path) {
            Ok((found, file)) => (Place::File(found), Some(file)),
            Err(Errno::NOENT | Errno::NOTDIR) => (Place::Missing, None),
            Err(_) => (Place::Unknown, None),
        }
    }

    /// Paths that mean something else to everyone who follows them: `self` is whoever asks, and
    /// not us.
    fn own(self, path: &Path) -> Option<(Place, Option<FileId>)> {
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
        let unknown = Some((Place::Unknown, None));
        let Some(link) = link.to_str() else {
            return unknown;
        };
        let own = self.proc(link);
        let target = match link {
            "root" => PathBuf::from("/"),
            _ => match std::fs::read_link(&own) {
                Ok(target) if target.is_absolute() => target,
                _ => return unknown,
            },
        };
        Some(match whole {
            true => (Place::File(target), FileId::of(&own)),
            false => self.find_file(&target.join(rest)),
        })
    }

    fn look(self, path: &Path) -> Result<(PathBuf, FileId), Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.proc("root"), flags | OFlags::DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&found)?;
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        let path = std::fs::read_link(link).map_err(|_| Errno::IO)?;
        Ok((path, FileId(stat.st_dev, stat.st_ino)))
    }

    fn proc(self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0)
    }
}
