//! Reading a file that somebody else may have put there. A path in a directory that a program may
//! write can be a FIFO, which blocks whoever opens it; a link to a device, which never ends or does
//! something when it is opened; or a file of any size. So a file is found first and looked at, opened
//! only if it is a regular one, and read up to a bound.

#![allow(
    clippy::missing_errors_doc,
    reason = "errors are those of the file system, and say what was found instead of a file"
)]

pub mod program;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// Reading without waiting for anything.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens a regular file. Links are followed; whatever else the path leads to is never opened.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    regular(path.as_ref(), OFlags::empty()).map(|(file, _)| file)
}

/// The same for a file that has to be there itself: a link in its place is not followed.
pub fn open_unlinked(path: impl AsRef<Path>) -> io::Result<File> {
    regular_unlinked(path.as_ref()).map(|(file, _)| file)
}

/// The same for a path without links: one that has been put anywhere on the way is an error.
pub fn open_without_links(path: impl AsRef<Path>) -> io::Result<File> {
    unlinked(path.as_ref(), OFlags::PATH).and_then(|found| opened(&found).map(|(file, _)| file))
}

/// A directory by its path without links, to work in by descriptor.
pub fn open_directory_without_links(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    unlinked(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY)
}

fn unlinked(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let (flags, resolve) = (flags | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(found) => Ok(found),
        Err(rustix::io::Errno::LOOP) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it was replaced by a symbolic link while it was being opened",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Reads a regular file of at most this many bytes.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let (file, size) = regular(path.as_ref(), OFlags::empty())?;
    bounded(file, size, most)
}

/// The same, as text.
pub fn read_to_string(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// The same for a file that has to be there itself: a link in its place is not followed.
pub fn read_unlinked(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    let (file, size) = regular_unlinked(path.as_ref())?;
    text(bounded(file, size, most)?)
}

/// Reads what the user named on the command line: a regular file, or one of the caller's own open
/// descriptors, such as `/dev/stdin` or the `/dev/fd/63` of a process substitution, to its end.
pub fn read_named(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if is_descriptor(path) {
        return read_stream(File::open(path)?, most);
    }
    read(path, most)
}

/// Whether a path names an open descriptor of the process itself.
pub fn is_descriptor(path: &Path) -> bool {
    if path == Path::new("/dev/stdin") {
        return true;
    }
    let number = ["/dev/fd", "/proc/self/fd"]
        .iter()
        .find_map(|folder| path.strip_prefix(folder).ok());
    number
        .and_then(Path::to_str)
        .is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a stream to its end, if that comes before the bound.
pub fn read_stream(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    read_expected(stream, 0, most)
}

/// Reads a stream that is expected to have this size.
fn read_expected(stream: impl Read, size: u64, most: u64) -> io::Result<Vec<u8>> {
    // The reader asks for the end only if it sees room for it. A file with holes takes no more memory.
    let room = size.min(most).min(1 << 20).saturating_add(32);
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    stream
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(bytes)
}

fn bounded(file: File, size: u64, most: u64) -> io::Result<Vec<u8>> {
    if size > most {
        return Err(too_large(most));
    }
    // It may grow while it is read.
    read_expected(file, size, most)
}

fn too_large(most: u64) -> io::Error {
    let message = format!("it is larger than {most} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// The file and its size. Without a link only root could have put a device there, so it is opened at once: that
/// takes a third of the time. A FIFO does not block.
fn regular_unlinked(path: &Path) -> io::Result<(File, u64)> {
    let direct = rustix::fs::openat(CWD, path, READ | OFlags::NOFOLLOW, Mode::empty());
    if let Ok(file) = direct {
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            return Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or(0)));
        }
    }
    // For the error that says what is there.
    regular(path, OFlags::NOFOLLOW)
}

/// The file and its size.
fn regular(path: &Path, flags: OFlags) -> io::Result<(File, u64)> {
    let found: OwnedFd = rustix::fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC | flags,
        Mode::empty(),
    )?;
    opened(&found)
}

/// Opens what was found, if it is a regular file.
fn opened(found: &OwnedFd) -> io::Result<(File, u64)> {
    let stat = rustix::fs::fstat(found)?;
    let problem = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            // The one that was looked at, whatever has the name by now. Some files of the kernel
            // are regular and wait for something to say: those don't block either.
            let again = format!("/proc/self/fd/{}", found.as_raw_fd());
            let file = rustix::fs::openat(CWD, again, READ, Mode::empty())?;
            return Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or(0)));
        }
        FileType::Directory => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        FileType::Symlink => "it is a symbolic link",
        FileType::Fifo => "it is a FIFO, not a regular file",
        FileType::Socket => "it is a socket, not a regular file",
        FileType::CharacterDevice | FileType::BlockDevice => "it is a device, not a regular file",
        FileType::Unknown => "it is not a regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_regular_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        let link = folder.path().join("link");
        symlink("file", &link).unwrap();
        assert_eq!(read_to_string(&link, 5).unwrap(), "12345");
        assert!(read_unlinked(&link, 5).is_err());
        assert_eq!(read_unlinked(&file, 5).unwrap(), "12345");
        let error = read(&file, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        // A hole is refused before a byte of it is read.
        let large = File::create(folder.path().join("large")).unwrap();
        large.set_len(1 << 40).unwrap();
        let begun = Instant::now();
        assert!(read(folder.path().join("large"), 1 << 20).is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
        let missing = read(folder.path().join("missing"), 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nothing_but_a_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let zero = folder.path().join("zero");
        symlink("/dev/zero", &zero).unwrap();
        let begun = Instant::now();
        for path in [&fifo, &socket, &zero, &folder.path().to_owned()] {
            assert!(open(path).is_err(), "{}", path.display());
            assert!(open_without_links(path).is_err());
            assert!(open_unlinked(path).is_err());
            assert!(read(path, 1 << 20).is_err());
            assert!(read_unlinked(path, 1 << 20).is_err());
            assert!(read_named(path, 1 << 20).is_err());
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "none was waited for"
        );
    }

    #[test]
    fn a_descriptor_that_was_named_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"streamed").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_named(&path, 100).unwrap(), b"streamed");
        for name in [
            "/dev/fd/",
            "/dev/fd/x",
            "/dev/fd/3/4",
            "/dev/fdx",
            "/dev/zero",
        ] {
            assert!(!is_descriptor(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_stream_without_an_end_is_cut_off() {
        let error = read_stream(io::repeat(0), 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
