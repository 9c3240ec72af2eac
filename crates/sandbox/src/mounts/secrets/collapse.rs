//! Which directories to hide in place of many secrets that lie in them. Code can make any number of
//! names in a mount that it may write, and must not make the next run fail by that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// How many paths there may be, and how long together.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub count: usize,
    pub bytes: usize,
}

impl Room {
    pub(super) fn has(self, count: usize, bytes: usize) -> bool {
        count <= self.count && bytes <= self.bytes
    }

    pub(super) fn times(self, number: usize) -> Self {
        Self {
            count: self.count * number,
            bytes: self.bytes * number,
        }
    }
}

/// Directories are told apart down to this depth; deeper ones are hidden with the one above.
pub(super) const DEPTH: usize = 8;
/// No directory has so many secrets of its own, so one with more holds a flood.
const MANY: usize = 64;

/// Directories, if hiding them leaves few enough paths beside them. Those that hold most go first, and of
/// nested ones the innermost, so that as little else as possible is hidden.
pub(super) fn collapse(
    mut paths: Vec<PathBuf>,
    room: Room,
    holds_shown: impl Fn(&Path) -> bool,
) -> Option<BTreeSet<PathBuf>> {
    let mut hidden: BTreeSet<PathBuf> = BTreeSet::new();
    // One secret in a directory: its path is shorter, which counts as well.
    for least in [MANY, 2, 1] {
        for depth in (1..=DEPTH).rev() {
            let mut counts: HashMap<PathBuf, (usize, usize)> = HashMap::new();
            for path in &paths {
                if let Some(directory) = beginning(path, depth) {
                    let (count, bytes) = counts.entry(directory).or_default();
                    *count += 1;
                    *bytes += path.as_os_str().len();
                }
            }
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.retain(|(directory, (count, _))| *count >= least && !holds_shown(directory));
            counts.sort_by(|(a, (x, _)), (b, (y, _))| y.cmp(x).then_with(|| a.cmp(b)));
            let mut count = paths.len();
            let mut bytes: usize = paths.iter().map(|path| path.as_os_str().len()).sum();
            let mut chosen: HashSet<PathBuf> = HashSet::new();
            for (directory, (below, length)) in counts {
                if room.has(count, bytes) {
                    break;
                }
                count = count + 1 - below;
                bytes = bytes + directory.as_os_str().len() - length;
                chosen.insert(directory);
            }
            let covered =
                |path: &PathBuf| beginning(path, depth).is_some_and(|at| chosen.contains(&at));
            paths.retain(|path| !covered(path));
            // One that was chosen before may lie in one that is now.
            hidden.retain(|path| !covered(path));
            paths.extend(chosen.iter().cloned());
            hidden.extend(chosen);
            if room.has(count, bytes) {
                return Some(hidden);
            }
        }
    }
    None
}

/// The first parts of a path, if it has more.
fn beginning(path: &Path, depth: usize) -> Option<PathBuf> {
    let mut parts = path.components();
    let beginning: PathBuf = parts.by_ref().take(depth).collect();
    parts.next().is_some().then_some(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collapsed(paths: &[String], count: usize) -> Option<Vec<String>> {
        let paths = paths.iter().map(PathBuf::from).collect();
        let room = Room {
            count,
            bytes: 100_000,
        };
        let found = collapse(paths, room, |path| path == Path::new("shown"))?;
        let found = found.into_iter();
        Some(found.map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn a_flood_is_hidden_where_it_is_and_nothing_else_with_it() {
        let mut paths: Vec<String> = (0..200).map(|n| format!("x/y/d{n}/.npmrc")).collect();
        paths.extend(["a/.ssh", "a/.npmrc", "x/.npmrc", "a/b/c/.netrc"].map(String::from));
        assert_eq!(
            collapsed(&paths, 300),
            Some(Vec::new()),
            "control: they fit"
        );
        assert_eq!(collapsed(&paths, 100), Some(vec!["x/y".into()]));
        // Smaller ones, if that is not enough.
        assert_eq!(collapsed(&paths, 3), Some(vec!["a".into(), "x/y".into()]));
        assert_eq!(collapsed(&paths, 2), Some(vec!["a".into(), "x".into()]));
    }

    #[test]
    fn what_is_shown_is_not_hidden_and_what_has_no_directory_can_not_be() {
        let paths: Vec<String> = (0..200).map(|n| format!("shown/d{n}/.npmrc")).collect();
        assert_eq!(collapsed(&paths, 100), None);
        let paths: Vec<String> = (0..200).map(|n| format!("d{n}/.npmrc")).collect();
        assert_eq!(collapsed(&paths, 100), None);
        assert!(collapsed(&paths, 200).is_some(), "control");
    }
}
