//! Just enough of the tar format to put a few files into an image.

const BLOCK: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.put(&format!("{path}/"), b'5', mode, 0, "");
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.put(path, b'0', mode, content.len(), "");
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// One more name of a file that came before.
    pub(crate) fn link(&mut self, path: &str, first: &str) {
        self.put(path, b'1', 0o555, 0, first);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend(end());
        self.bytes
    }

    fn put(&mut self, path: &str, kind: u8, mode: u32, size: usize, first: &str) {
        self.bytes
            .extend_from_slice(&header(path, kind, mode, size, first));
    }
}

/// What comes before the content of a file.
pub(crate) fn file_header(path: &str, mode: u32, size: usize) -> Vec<u8> {
    header(path, b'0', mode, size, "").to_vec()
}

/// What comes after it.
pub(crate) fn padding(size: usize) -> Vec<u8> {
    vec![0; size.next_multiple_of(BLOCK) - size]
}

/// What comes after the last file.
pub(crate) fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

/// Owned by root, at the beginning of time: the same files are the same bytes.
fn header(path: &str, kind: u8, mode: u32, size: usize, first: &str) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    let (folder, name) = split(path);
    put(0, name);
    put(345, folder);
    put(157, first);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Whether there is room for a path.
pub(crate) fn fits(path: &str) -> bool {
    let (folder, name) = split(path);
    name.len() <= 100 && folder.len() <= 155
}

/// A long path has its first folders in a field of their own.
fn split(path: &str) -> (&str, &str) {
    if path.len() <= 100 {
        return ("", path);
    }
    let slashes = path.match_indices('/').map(|(at, _)| at);
    let at = slashes.take_while(|at| *at <= 155).last();
    at.map_or(("", path), |at| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_it() {
        let mut archive = Archive::default();
        archive.folder(".brig", 0o555);
        archive.file(".brig/guest", 0o555, b"program");
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("a.tar");
        std::fs::write(&file, archive.finish()).expect("write");
        let said = std::process::Command::new("tar")
            .arg("-tvf")
            .arg(&file)
            .output()
            .expect("tar");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        let modes: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(modes, ["dr-xr-xr-x", "-r-xr-xr-x"]);
        assert!(text.contains(" 7 1970-01-01"), "{text}");
    }
}
