//! Reading a file that the user named. Code in a sandbox may have left a link, a FIFO or a huge file
//! under that name, in a directory that it was given.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::follow;

/// Opens a regular file, or one of the process's own descriptors such as `/dev/stdin`. A link that
/// code may have created is not followed ([`follow`]).
///
/// # Errors
///
/// It is missing, is not a regular file, or is behind such a link.
pub fn open_named(path: &Path) -> io::Result<File> {
    if brig_input::is_descriptor(path) {
        return File::open(path);
    }
    follow(path).and_then(brig_input::open_without_links)
}

/// Reads the same, if it has at most this many bytes.
///
/// # Errors
///
/// As [`open_named`], and if it is larger.
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    brig_input::read_stream(open_named(path)?, most)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_of_the_code_does_not_choose_the_file() {
        let outer = tempfile::tempdir().expect("directory");
        let outer = outer.path().canonicalize().expect("path");
        let project = outer.join("project");
        std::fs::create_dir(&project).expect("directory");
        std::fs::write(outer.join("secret"), "secret").expect("file");
        std::fs::write(project.join("file"), "12345").expect("file");
        symlink("../secret", project.join("outer")).expect("link");
        symlink("file", project.join("inner")).expect("link");
        assert_eq!(
            read_named(&project.join("inner"), 5).expect("own"),
            b"12345"
        );
        let control = std::fs::read(project.join("outer"));
        assert_eq!(control.expect("control: it leads there"), b"secret");
        assert!(read_named(&project.join("outer"), 100).is_err());
        let error = read_named(&project.join("file"), 4).expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
