//! Which file a system call of another process is about, and what it does there.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::libc::{self, user_regs_struct};
use nix::unistd::Pid;

/// What a call does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Opens without being able to write.
    Open,
    /// Opens to write, or makes it.
    OpenToWrite,
    /// Makes a name: a directory, a link, the new name of a file.
    Name,
    /// Removes a name, or changes owner, mode or times.
    Change,
    Write,
    Flush,
    /// Reads, locks, or asks about what is open.
    Read,
    /// Asks about a name.
    Look,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub name: &'static str,
    pub does: Does,
    pub path: PathBuf,
}

/// Where the arguments are that say which file.
#[derive(Clone, Copy)]
enum Is {
    /// A descriptor in this argument.
    Fd(usize),
    /// A path in this argument, relative to the working directory.
    Path(usize),
    /// A descriptor of a directory in this argument, and a path in the next.
    At(usize),
    /// Two of them; the second decides.
    TwoPaths(usize, usize),
    TwoAt(usize, usize),
}

/// The call, if it is about something below this directory.
pub(super) fn decode(thread: Pid, registers: &user_regs_struct, below: &Path) -> Option<Call> {
    let arguments = [
        registers.rdi,
        registers.rsi,
        registers.rdx,
        registers.r10,
        registers.r8,
        registers.r9,
    ];
    let number = i64::try_from(registers.orig_rax).ok()?;
    let (name, mut does, files) = known(number)?;
    let process = Process { thread, arguments };
    let flags = match number {
        libc::SYS_open => Some(arguments[1]),
        libc::SYS_openat => Some(arguments[2]),
        // The first member of the structure.
        libc::SYS_openat2 => process.number(arguments[2]),
        _ => None,
    };
    if let Some(flags) = flags {
        let writes = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT;
        if flags & u64::from(writes.unsigned_abs()) != 0 {
            does = Does::OpenToWrite;
        }
    }
    let path = match files {
        Is::Fd(at) => process.descriptor(at),
        Is::Path(at) => process.path(None, at),
        Is::At(at) => process.path(Some(at), at + 1),
        Is::TwoPaths(first, second) => process
            .path(None, second)
            .filter(|path| path.starts_with(below))
            .or_else(|| process.path(None, first)),
        Is::TwoAt(first, second) => process
            .path(Some(second), second + 1)
            .filter(|path| path.starts_with(below))
            .or_else(|| process.path(Some(first), first + 1)),
    }?;
    path.starts_with(below).then_some(Call { name, does, path })
}

struct Process {
    thread: Pid,
    arguments: [u64; 6],
}

impl Process {
    fn descriptor(&self, at: usize) -> Option<PathBuf> {
        // Only the lower half counts for the kernel.
        let fd = i32::from_ne_bytes(self.arguments[at].to_ne_bytes()[..4].try_into().ok()?);
        let name = if fd == libc::AT_FDCWD {
            format!("/proc/{}/cwd", self.thread)
        } else {
            format!("/proc/{}/fd/{fd}", self.thread)
        };
        std::fs::read_link(name).ok()
    }

    fn path(&self, directory: Option<usize>, at: usize) -> Option<PathBuf> {
        let path = self.text(self.arguments[at])?;
        if path.is_absolute() {
            return Some(path);
        }
        let start = match directory {
            Some(directory) => self.descriptor(directory)?,
            None => std::fs::read_link(format!("/proc/{}/cwd", self.thread)).ok()?,
        };
        // With an empty path the call is about the descriptor.
        Some(if path.as_os_str().is_empty() {
            start
        } else {
            start.join(path)
        })
    }

    fn text(&self, address: u64) -> Option<PathBuf> {
        let memory = self.memory()?;
        let mut text = vec![0; 4096];
        // The next page may not be there.
        let length = match memory.read_at(&mut text, address) {
            Ok(length) => length,
            Err(_) => {
                let rest = 4096 - usize::try_from(address % 4096).ok()?;
                memory.read_at(&mut text[..rest], address).ok()?
            }
        };
        let end = text[..length].iter().position(|byte| *byte == 0)?;
        text.truncate(end);
        Some(OsString::from_vec(text).into())
    }

    fn number(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory()?.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    fn memory(&self) -> Option<File> {
        File::open(format!("/proc/{}/mem", self.thread)).ok()
    }
}

fn known(number: i64) -> Option<(&'static str, Does, Is)> {
    use Is::{At, Fd, Path, TwoAt, TwoPaths};
    Some(match number {
        libc::SYS_open => ("open", Does::Open, Path(0)),
        libc::SYS_creat => ("creat", Does::OpenToWrite, Path(0)),
        libc::SYS_openat => ("openat", Does::Open, At(0)),
        libc::SYS_openat2 => ("openat2", Does::Open, At(0)),

        libc::SYS_mkdir => ("mkdir", Does::Name, Path(0)),
        libc::SYS_mkdirat => ("mkdirat", Does::Name, At(0)),
        libc::SYS_mknodat => ("mknodat", Does::Name, At(0)),
        libc::SYS_symlink => ("symlink", Does::Name, Path(1)),
        libc::SYS_symlinkat => ("symlinkat", Does::Name, At(1)),
        libc::SYS_link => ("link", Does::Name, TwoPaths(0, 1)),
        libc::SYS_linkat => ("linkat", Does::Name, TwoAt(0, 2)),
        libc::SYS_rename => ("rename", Does::Name, TwoPaths(0, 1)),
        libc::SYS_renameat => ("renameat", Does::Name, TwoAt(0, 2)),
        libc::SYS_renameat2 => ("renameat2", Does::Name, TwoAt(0, 2)),

        libc::SYS_unlink => ("unlink", Does::Change, Path(0)),
        libc::SYS_rmdir => ("rmdir", Does::Change, Path(0)),
        libc::SYS_unlinkat => ("unlinkat", Does::Change, At(0)),
        libc::SYS_chmod => ("chmod", Does::Change, Path(0)),
        libc::SYS_fchmod => ("fchmod", Does::Change, Fd(0)),
        libc::SYS_fchmodat => ("fchmodat", Does::Change, At(0)),
        libc::SYS_chown => ("chown", Does::Change, Path(0)),
        libc::SYS_lchown => ("lchown", Does::Change, Path(0)),
        libc::SYS_fchown => ("fchown", Does::Change, Fd(0)),
        libc::SYS_fchownat => ("fchownat", Does::Change, At(0)),
        libc::SYS_utimensat => ("utimensat", Does::Change, At(0)),
        libc::SYS_setxattr => ("setxattr", Does::Change, Path(0)),
        libc::SYS_lsetxattr => ("lsetxattr", Does::Change, Path(0)),
        libc::SYS_fsetxattr => ("fsetxattr", Does::Change, Fd(0)),

        libc::SYS_write => ("write", Does::Write, Fd(0)),
        libc::SYS_writev => ("writev", Does::Write, Fd(0)),
        libc::SYS_pwrite64 => ("pwrite64", Does::Write, Fd(0)),
        libc::SYS_truncate => ("truncate", Does::Write, Path(0)),
        libc::SYS_ftruncate => ("ftruncate", Does::Write, Fd(0)),
        libc::SYS_fallocate => ("fallocate", Does::Write, Fd(0)),
        libc::SYS_sendfile => ("sendfile", Does::Write, Fd(0)),
        libc::SYS_copy_file_range => ("copy_file_range", Does::Write, Fd(2)),

        libc::SYS_fsync => ("fsync", Does::Flush, Fd(0)),
        libc::SYS_fdatasync => ("fdatasync", Does::Flush, Fd(0)),
        libc::SYS_syncfs => ("syncfs", Does::Flush, Fd(0)),

        libc::SYS_read => ("read", Does::Read, Fd(0)),
        libc::SYS_readv => ("readv", Does::Read, Fd(0)),
        libc::SYS_pread64 => ("pread64", Does::Read, Fd(0)),
        libc::SYS_getdents64 => ("getdents64", Does::Read, Fd(0)),

        libc::SYS_stat => ("stat", Does::Look, Path(0)),
        libc::SYS_lstat => ("lstat", Does::Look, Path(0)),
        libc::SYS_newfstatat => ("newfstatat", Does::Look, At(0)),
        libc::SYS_statx => ("statx", Does::Look, At(0)),
        libc::SYS_access => ("access", Does::Look, Path(0)),
        libc::SYS_faccessat => ("faccessat", Does::Look, At(0)),
        libc::SYS_faccessat2 => ("faccessat2", Does::Look, At(0)),
        libc::SYS_readlink => ("readlink", Does::Look, Path(0)),
        libc::SYS_readlinkat => ("readlinkat", Does::Look, At(0)),
        libc::SYS_statfs => ("statfs", Does::Look, Path(0)),
        libc::SYS_getxattr => ("getxattr", Does::Look, Path(0)),
        libc::SYS_lgetxattr => ("lgetxattr", Does::Look, Path(0)),
        libc::SYS_llistxattr => ("llistxattr", Does::Look, Path(0)),

        libc::SYS_fstat => ("fstat", Does::Read, Fd(0)),
        libc::SYS_fstatfs => ("fstatfs", Does::Read, Fd(0)),
        libc::SYS_fgetxattr => ("fgetxattr", Does::Read, Fd(0)),
        libc::SYS_flistxattr => ("flistxattr", Does::Read, Fd(0)),
        libc::SYS_flock => ("flock", Does::Read, Fd(0)),
        _ => return None,
    })
}
