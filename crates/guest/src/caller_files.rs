//! What a caller's descriptors, paths and pointers refer to. Each is taken, opened or read once, so
//! that nothing can change between a check and its use.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use brig_caller::Caller;
use brig_linux::notify::read_memory;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

const PAGE: u64 = 4096;
const LONGEST_PATH: usize = 4096;

/// A duplicate of the caller's descriptor.
pub(crate) fn take_descriptor(thread: u32, descriptor: i32) -> Result<OwnedFd, Errno> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    let (process, _) = Caller::process_and_parent(thread).ok_or(Errno::SRCH)?;
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pidfd = rustix::process::pidfd_open(process.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(pidfd, descriptor, PidfdGetfdFlags::empty())
}

/// Opens a path as the caller's kernel would resolve it.
pub(crate) fn open(thread: u32, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = Path::new(OsStr::from_bytes(path));
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    let link = |name: &str| {
        let target = std::fs::read_link(format!("/proc/{thread}/{name}"));
        target.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let path = match process_link(path) {
        Some((name, rest)) => link(&name)?.join(rest),
        None if path.is_absolute() => path.to_owned(),
        None => link("cwd")?.join(path),
    };
    let found = OFlags::PATH | OFlags::CLOEXEC;
    let root = format!("/proc/{thread}/root");
    let root = rustix::fs::open(root, found | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, path, found | flags, Mode::empty(), resolve)
}

/// A link at the head of a path that means something else in each process. Programs use such links
/// for paths that are too long for a socket address.
fn process_link(path: &Path) -> Option<(String, PathBuf)> {
    let links = ["/proc/self", "/proc/thread-self", "/dev/fd"];
    let (link, rest) = links
        .into_iter()
        .find_map(|link| Some((link, path.strip_prefix(link).ok()?)))?;
    let mut parts = rest.components();
    let mut next = || match parts.next() {
        Some(Component::Normal(name)) => name.to_str(),
        _ => None,
    };
    let name = if link == "/dev/fd" { "fd" } else { next()? };
    let link = match name {
        "fd" => format!("fd/{}", next()?.parse::<u32>().ok()?),
        "cwd" | "root" => name.to_owned(),
        _ => return None,
    };
    Some((link, parts.as_path().to_owned()))
}

/// A path in the memory of the caller, page by page, because the next page may not be mapped.
pub(crate) fn read_path(thread: u32, mut at: u64) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    while text.len() < LONGEST_PATH {
        let mut part = [0; 512];
        let most = part
            .len()
            .min(usize::try_from(PAGE - at % PAGE).unwrap_or(1));
        let read = read_memory(thread, at, &mut part[..most]).unwrap_or(0);
        if read == 0 {
            return Err(Errno::FAULT);
        }
        match part[..read].iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&part[..end]);
                return Ok(text);
            }
            None => text.extend_from_slice(&part[..read]),
        }
        at = at.wrapping_add(read as u64);
    }
    Err(Errno::NAMETOOLONG)
}

/// Memory of the caller, completely or not at all.
pub(crate) fn read_exact(thread: u32, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    match read_memory(thread, at, bytes) {
        Ok(read) if read == bytes.len() => Ok(()),
        Ok(_) | Err(_) => Err(Errno::FAULT),
    }
}

/// Whether a signal is pending that the thread does not block.
pub(crate) fn has_pending_signal(thread: u32) -> bool {
    let status = format!("/proc/{thread}/status");
    let Ok(status) = brig_linux::process_stat::read_proc_text(status) else {
        return true;
    };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
            .unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_ones_own_are_found_at_the_head_of_a_path() {
        let link = |path: &str| process_link(Path::new(path));
        let found = |link: &str, rest: &str| Some((link.to_owned(), PathBuf::from(rest)));
        assert_eq!(link("/proc/self/fd/7/sock"), found("fd/7", "sock"));
        assert_eq!(link("/dev/fd/7/a/b"), found("fd/7", "a/b"));
        assert_eq!(link("/proc/thread-self/cwd/s"), found("cwd", "s"));
        assert_eq!(link("/proc/self/root/tmp/s"), found("root", "tmp/s"));
        assert_eq!(link("/proc/self/exe"), None);
        assert_eq!(link("/proc/self/fd/../s"), None);
        assert_eq!(link("/tmp/s"), None);
        assert_eq!(link("proc/self/fd/7/s"), None);
    }
}
