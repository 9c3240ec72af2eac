//! The lists of mounts in /proc, as text.

use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::process_stat::read_proc;

/// Reads `mountinfo`. Bytes of a path that are not UTF-8 are escaped as the kernel escapes a space, by three octal
/// digits: whoever may mount, or name a directory that is mounted, must not make the list unreadable.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_proc(path).map(|list| escaped(&list))
}

fn escaped(list: &[u8]) -> String {
    let mut text = String::with_capacity(list.len());
    for chunk in list.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_makes_the_list_unreadable() {
        assert_eq!(escaped("22 1 /a\\040ö".as_bytes()), "22 1 /a\\040ö");
        assert_eq!(escaped(b"/\xff/\x9bx \xc3"), "/\\377/\\233x \\303");
        assert!(read("/proc/self/mountinfo").is_ok_and(|list| list.contains(" / ")));
    }
}
