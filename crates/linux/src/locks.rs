//! Who has a file locked.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};

/// The processes that have a `flock` on the file, as far as `/proc/locks` shows them: none of another PID namespace, and
/// none on file systems whose files have another device there.
pub fn holders(file: &File) -> io::Result<Vec<u32>> {
    let metadata = file.metadata()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let name = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    Ok(parse(&fs::read_to_string("/proc/locks")?, &name))
}

/// `1: FLOCK  ADVISORY  WRITE 12539 fe:00:1064963 0 EOF`. A line with `->` is of one that waits.
fn parse(locks: &str, name: &str) -> Vec<u32> {
    let held = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, file, ..] if file == name => pid.parse().ok(),
            _ => None,
        }
    };
    locks
        .lines()
        .filter_map(held)
        .filter(|pid| *pid != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_have_it_are_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 12 fe:00:7 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 13 fe:00:7 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 14 fe:00:7 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 15 fe:00:70 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 0 fe:00:7 0 EOF\n5: FLOCK\n";
        assert_eq!(parse(locks, "fe:00:7"), [12]);
    }

    #[test]
    fn a_lock_of_this_process_is_seen() {
        let file = tempfile::tempfile().expect("a file");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        let holders = holders(&file).expect("/proc/locks");
        // The file system may number its devices otherwise.
        assert!(holders.is_empty() || holders == [std::process::id()]);
        assert!(
            holders == [std::process::id()] || !is_plain(&file),
            "{holders:?}"
        );
    }

    fn is_plain(file: &File) -> bool {
        let kind = rustix::fs::fstatfs(file).expect("statfs").f_type;
        // ext and tmpfs.
        [0xef53, 0x0102_1994].contains(&kind)
    }
}
