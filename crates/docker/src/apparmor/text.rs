//! Words of a profile.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the engine's own profile says, written without its includes, and without the right to unmount.
pub(super) const BASE: &str = "\
  network,
  unix,
  capability,
  deny mount,
  deny umount,
  deny pivot_root,
  signal (receive) peer=unconfined,
  signal (receive) peer={runc,crun,dockerd,docker},
  deny /proc/* w,
  deny /proc/{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9]*}/** w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/kernel/{?,??,[^s][^h][^m]**} w,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/kcore rwklx,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
";

/// A path that matches itself only, or nothing if it can't be written so.
pub(super) fn exactly(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    bytes
        .iter()
        .all(|byte| word(*byte).is_some())
        .then(|| at_least(path))
}

/// One that matches it, and perhaps others: what can't be written stands for any character.
pub(super) fn at_least(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match word(*byte) {
            Some(true) => text.push(char::from(*byte)),
            Some(false) => {
                let _ = write!(text, "\\{}", char::from(*byte));
            }
            None => text.push('?'),
        }
    }
    text
}

/// Whether a character stands for itself, or does with a backslash.
fn word(byte: u8) -> Option<bool> {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => Some(true),
        b'/' | b'.' | b'_' | b'-' | b'+' | b':' | b'=' | b'~' | b'%' | b' ' => Some(true),
        b'[' | b']' | b'{' | b'}' | b'*' | b'?' | b'^' | b',' => Some(false),
        _ => None,
    }
}
