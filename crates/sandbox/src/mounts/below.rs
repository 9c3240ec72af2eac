//! What is mounted below a folder comes along with it, and was not checked by its path.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::rules;

/// Why something that is mounted below `folder` can't come along, and where it is.
pub(super) fn problem(folder: &Path) -> std::io::Result<Option<String>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(problem_in(&text, folder))
}

fn problem_in(mountinfo: &str, folder: &Path) -> Option<String> {
    let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::parse).collect();
    let (below, outside): (Vec<_>, Vec<_>) = mounts
        .iter()
        .partition(|mount| mount.at != folder && mount.at.starts_with(folder));
    below.into_iter().find_map(|mount| {
        let why = if rules::KERNEL_FILE_SYSTEMS
            .iter()
            .any(|(_, name)| *name == mount.kind)
            || mount.kind == "devtmpfs"
        {
            format!("it belongs to the kernel ({})", mount.kind)
        } else if outside.iter().any(|other| other.device == mount.device) {
            "it lies elsewhere too; mount it on its own".to_owned()
        } else {
            return None;
        };
        let at = mount.at.display();
        Some(format!("something is mounted below it at `{at}`: {why}"))
    })
}

/// A line of mountinfo.
struct Mount<'a> {
    device: &'a str,
    at: PathBuf,
    kind: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        Some(Self {
            device: left.next()?,
            at: unescape(left.nth(1)?),
            kind: right.split(' ').next()?,
        })
    }
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                &tail[3..]
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
30 22 254:16 / /srv/a/disk rw shared:4 - xfs /dev/vdb rw
31 22 0:40 / /srv/a/scratch rw - tmpfs tmpfs rw
32 22 254:0 /home /srv/b/home rw - ext4 /dev/vda rw
33 22 0:41 / /srv/c/a\\040name/proc rw - proc proc rw
34 22 0:42 / /srv/d rw - tmpfs tmpfs rw
";

    #[test]
    fn what_is_mounted_below_is_judged() {
        let problem = |folder: &str| problem_in(MOUNTS, Path::new(folder));
        assert_eq!(problem("/srv/a"), None);
        assert_eq!(problem("/srv/d"), None);
        assert_eq!(problem("/srv/bb"), None);
        let elsewhere = problem("/srv/b").unwrap();
        assert!(elsewhere.contains("/srv/b/home"), "{elsewhere}");
        let kernel = problem("/srv/c").unwrap();
        assert!(kernel.contains("/srv/c/a name/proc"), "{kernel}");
    }
}
