//! Links on the way to a path that the caller named. Code in a sandbox can leave links behind in a
//! directory that it was given; the next run must not be led elsewhere by one of them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{rules, source};

/// As many as the kernel follows.
const MOST: usize = 40;
/// What a lookup takes beside its path, in bytes of one.
const LOOKUP: usize = 64;

/// The path without links, if every link on the way is the caller's own, or stays within the
/// directory that it lies in.
///
/// A link is the caller's own if it lies where no sandbox can be given anything to write: in the
/// root, in a directory of the system, directly in a home or above one.
///
/// By the time it is used, a link may have been put on the way: what is found is to be opened without
/// following any (`brig_input::open_without_links`).
pub fn follow(given: &Path) -> io::Result<PathBuf> {
    let way = walk(given).map_err(|(_, error)| error)?;
    judge(way)
}

/// The same without any link that lies in one of `mounts`: code that may write there, now or in an
/// earlier run, may have made it.
pub(super) fn follow_outside(given: &Path, mounts: &[PathBuf]) -> Option<PathBuf> {
    let way = walk(given).ok()?;
    let inside = |link: &PathBuf| mounts.iter().any(|mount| link.starts_with(mount));
    match way.links.iter().any(inside) {
        true => None,
        false => judge(way).ok(),
    }
}

fn judge(Way { found, links, .. }: Way) -> io::Result<PathBuf> {
    let mut homes = None;
    for link in links {
        let folder = link.parent().unwrap_or(Path::new("/"));
        if found.starts_with(folder) || is_system(folder) {
            continue;
        }
        let homes: &Vec<PathBuf> = homes.get_or_insert_with(source::homes);
        if homes.iter().any(|home| home.starts_with(folder)) {
            continue;
        }
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "`{}` is a symbolic link to another place, and code in a sandbox may have created \
                 it; if you mean that place, use its path: `{}`",
                link.display(),
                found.display()
            ),
        ));
    }
    Ok(found)
}

/// Where a path leads, whoever made the links: what it names, or the directory on the way that can't
/// be searched. And how much was looked up for that.
pub(super) fn way(given: &Path) -> (Option<Way>, usize) {
    match walk(given) {
        Ok(way) => {
            let cost = way.cost;
            (Some(way), cost)
        }
        Err((way, error)) => {
            let cost = way.cost;
            let closed = error.kind() == io::ErrorKind::PermissionDenied;
            (closed.then_some(way), cost)
        }
    }
}

/// A path without links, and the links on the way there, each as a path without links.
pub(super) struct Way {
    pub found: PathBuf,
    pub links: Vec<PathBuf>,
    /// What it took to find: for each lookup a fixed part, and the bytes of its path.
    cost: usize,
}

/// A path without links, and the links on the way there.
pub(crate) fn resolved(given: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let way = walk(given).ok()?;
    Some((way.found, way.links))
}

/// Where no sandbox can write, because it is never mounted.
pub(crate) fn is_system(folder: &Path) -> bool {
    let below = |tree: &&str| folder.starts_with(tree);
    // A home may be a link itself.
    folder == Path::new("/")
        || folder == Path::new("/home")
        || rules::SOURCE_TREES.iter().any(|(tree, _)| below(tree))
            && !rules::SOURCE_HARMLESS.iter().any(below)
}

/// Where a path leads; or how far, and what is wrong there.
fn walk(given: &Path) -> Result<Way, (Way, io::Error)> {
    let given = std::path::absolute(given).map_err(|error| {
        let way = Way {
            found: given.to_owned(),
            links: Vec::new(),
            cost: 0,
        };
        (way, error)
    })?;
    let mut rest: VecDeque<OsString> = parts(&given);
    let (mut found, mut links, mut cost) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            found.pop();
            continue;
        }
        let next = found.join(&part);
        cost += LOOKUP + next.as_os_str().len();
        let target = match fs::symlink_metadata(&next) {
            Ok(meta) if !meta.is_symlink() => {
                found = next;
                continue;
            }
            Ok(_) if links.len() == MOST => Err(rustix::io::Errno::LOOP.into()),
            Ok(_) => fs::read_link(&next),
            Err(error) => Err(error),
        };
        let target = match target {
            Ok(target) => target,
            Err(error) => return Err((Way { found, links, cost }, error)),
        };
        links.push(next);
        if target.is_absolute() {
            found = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            rest.push_front(part);
        }
    }
    Ok(Way { found, links, cost })
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_stays_where_it_lies() {
        let outer = tempfile::tempdir().expect("folder");
        let outer = outer.path().canonicalize().expect("path");
        let (project, private) = (outer.join("project"), outer.join("private"));
        for folder in [&project, &private, &project.join("real")] {
            fs::create_dir_all(folder).expect("folder");
        }
        fs::write(private.join("file"), "x").expect("file");
        let link = |target: &str, name: &str| symlink(target, project.join(name)).expect("link");
        link("real", "inner");
        link("../private", "outer");
        link("../private/file", "script.py");
        link("/usr/bin/env", "tool");
        link("inner/../../private", "winding");
        link("turning", "turning");
        assert_eq!(
            follow(&project.join("inner")).expect("stays"),
            project.join("real")
        );
        assert_eq!(
            follow(&project.join("real")).expect("no link"),
            project.join("real")
        );
        for name in [
            "outer",
            "outer/file",
            "script.py",
            "tool",
            "winding",
            "turning",
        ] {
            let error = follow(&project.join(name)).expect_err(name);
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{name}: {error}");
        }
        // Control: they do lead there.
        let there = private.join("file");
        assert_eq!(
            project.join("outer/file").canonicalize().expect("link"),
            there
        );
        assert_eq!(follow(&there).expect("named itself"), there);
        assert_eq!(
            follow(&outer.join("missing")).expect_err("missing").kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn what_was_followed_is_opened_without_links() {
        use std::io::Read;
        let outer = tempfile::tempdir().expect("folder");
        let outer = outer.path().canonicalize().expect("path");
        fs::create_dir(outer.join("real")).expect("folder");
        fs::write(outer.join("real/file"), "x").expect("file");
        symlink("real/file", outer.join("inner")).expect("link");
        symlink("real", outer.join("folder")).expect("link");
        let mut text = String::new();
        let found = follow(&outer.join("inner")).expect("stays");
        let mut file = brig_input::open_without_links(found).expect("no link");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "x");
        // What has become a link since it was followed: the file, or a directory on the way.
        for name in ["inner", "folder/file"] {
            assert!(
                brig_input::open(outer.join(name)).is_ok(),
                "control: {name}"
            );
            assert!(
                brig_input::open_without_links(outer.join(name)).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn links_of_the_system_are_followed() {
        if Path::new("/bin").is_symlink() {
            assert_eq!(
                follow(Path::new("/bin/env")).expect("sh"),
                Path::new("/usr/bin/env")
            );
        }
        assert!(follow(Path::new("/proc/self/exe")).is_ok());
    }
}
