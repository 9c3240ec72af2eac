//! Whether the time of the last access to a file tells that it was mapped.
//!
//! A write through a shared mapping need not change any time: if the page was read first, no fault tells of the write.
//! But a file of a tmpfs is mapped by a call that is an access by itself. So a file that was last accessed when it was
//! looked at the last time, and that no process had mapped then, can't have been written to through a mapping since.
//! This holds unless programs may open files with `O_NOATIME`, which a filter has to refuse.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, Mode, OFlags, StatVfsMountFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::time::ClockId;

/// Seconds and nanoseconds.
pub type Time = (i64, u32);

/// What a change or an access would have as its time now: files have the time of the last tick of a clock. A file with
/// an earlier time was not changed, or accessed, from now on.
pub fn now() -> Time {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What the times of access in a file system tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Nothing that can be relied on.
    #[default]
    Unknown,
    /// The first access after a change (`relatime`). Later ones change the time at most once a day.
    First,
    /// Every access (`strictatime`).
    Every,
}

/// `TMPFS_MAGIC`.
const TMPFS: i128 = 0x0102_1994;
const LENGTH: usize = 4096;

impl AccessTimes {
    /// Of the mount that this directory was opened on, which must be writable. Tries it out.
    pub fn of(directory: impl AsFd) -> io::Result<Self> {
        if i128::from(rustix::fs::fstatfs(&directory)?.f_type) != TMPFS {
            return Ok(Self::Unknown);
        }
        let flags = rustix::fs::fstatvfs(&directory)?.f_flag;
        if flags.contains(StatVfsMountFlags::NOATIME) || !mapping_is_access(&directory)? {
            return Ok(Self::Unknown);
        }
        Ok(match flags.contains(StatVfsMountFlags::RELATIME) {
            true => Self::First,
            false => Self::Every,
        })
    }

    /// Whether the next access to a file changes its time of access.
    pub fn show_next(self, accessed: Time, changed: Time) -> bool {
        match self {
            Self::Unknown => false,
            Self::First => accessed <= changed,
            Self::Every => true,
        }
    }
}

/// Maps a file without a name, and looks at its time. A user that has no id in the file system can't make one there.
fn mapping_is_access(directory: impl AsFd) -> io::Result<bool> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR);
    let file = match made {
        Err(Errno::OVERFLOW) => rustix::fs::memfd_create(c"probe", MemfdFlags::CLOEXEC)?,
        made => made?,
    };
    rustix::fs::ftruncate(&file, LENGTH as u64)?;
    let long_ago = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: long_ago,
        last_modification: long_ago,
    };
    rustix::fs::futimens(&file, &times)?;
    let accessed = || -> io::Result<_> { Ok(rustix::fs::fstat(&file)?.st_atime) };
    let before = accessed()?;
    map(&file)?;
    Ok(before == 1 && accessed()? != before)
}

fn map(file: &OwnedFd) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses where, so nothing that exists is replaced.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            LENGTH,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was mapped above with this length, and there is no reference to it.
    if unsafe { libc::munmap(address, LENGTH) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Opens a file, if possible so that reading it does not change its time of access: only its owner may do that.
pub fn open_unseen(
    open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_mapping_of_a_file_in_memory_is_an_access() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("directory");
        let directory = File::open(memory.path()).expect("open");
        assert_ne!(
            AccessTimes::of(&directory).expect("times"),
            AccessTimes::Unknown
        );
        let other = File::open("/proc/self").expect("open");
        assert_eq!(
            AccessTimes::of(&other).expect("times"),
            AccessTimes::Unknown
        );
        let empty = std::fs::read_dir(memory.path()).expect("list").count();
        assert_eq!(empty, 0, "nothing is left");
    }

    #[test]
    fn no_later_change_has_an_earlier_time_than_now() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("directory");
        let path = memory.path().join("file");
        for _ in 0..2000 {
            let before = now();
            std::fs::write(&path, "text").expect("write");
            let found = rustix::fs::stat(&path).expect("stat");
            let changed = (
                found.st_ctime,
                u32::try_from(found.st_ctime_nsec).expect("time"),
            );
            assert!(before <= changed, "{before:?} {changed:?}");
        }
    }

    #[test]
    fn with_relative_times_only_the_first_access_after_a_change_shows() {
        let (early, late) = ((5, 999_999_999), (6, 0));
        for (times, accessed, changed, shows) in [
            (AccessTimes::Every, late, early, true),
            (AccessTimes::First, late, early, false),
            (AccessTimes::First, early, early, true),
            (AccessTimes::First, early, late, true),
            (AccessTimes::Unknown, early, late, false),
        ] {
            assert_eq!(times.show_next(accessed, changed), shows, "{times:?}");
        }
    }
}
