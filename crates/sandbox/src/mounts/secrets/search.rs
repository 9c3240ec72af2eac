//! The search: every directory of every mount is listed once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;

use super::covers::Area;
use crate::mounts::source::HomeSecret;
use crate::mounts::{links, rules};
use crate::plan::HiddenReason;

/// As many entries are looked at in one mount. More take too long at every start.
pub(super) const MOST_ENTRIES: usize = 1_000_000;
/// What all links may take to follow, of which code can make any that take long: about a second.
const MOST_FOLLOWED: usize = 64 << 20;
/// What lies deeper can't be named in one path.
const LONGEST: usize = 3000;

pub(super) enum Problem {
    Entries,
    Hidden,
    Links,
    Io(PathBuf, io::Error),
}

/// With the number of the mount.
type Searched<T = ()> = Result<T, (usize, Problem)>;

/// A directory to look at.
#[derive(Default)]
struct Folder {
    area: usize,
    /// Below the mount.
    path: PathBuf,
    /// All in it is hidden but what is shown by its name.
    secret: bool,
}

pub(super) struct Search<'a> {
    areas: Vec<Area>,
    shown: &'a [PathBuf],
    /// The names that lie above, by the last part of a secret.
    names: HashMap<&'static [u8], Vec<&'static Path>>,
    /// The beginnings of secrets of several parts, by their last part, with what is left of each.
    begun: HashMap<&'static [u8], Vec<(&'static str, &'static str)>>,
    folders: Vec<Folder>,
    followed: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(areas: Vec<Area>, shown: &'a [PathBuf]) -> Self {
        let mut names: HashMap<&[u8], Vec<&Path>> = HashMap::new();
        let mut begun: HashMap<&[u8], Vec<_>> = HashMap::new();
        for secret in rules::SECRETS.split_whitespace() {
            let (above, name) = secret.rsplit_once('/').unwrap_or(("", secret));
            let above = Path::new(above);
            names.entry(name.as_bytes()).or_default().push(above);
            for (at, _) in secret.match_indices('/') {
                let (beginning, rest) = (&secret[..at], &secret[at + 1..]);
                let name = beginning.rsplit('/').next().unwrap_or(beginning);
                let begun = begun.entry(name.as_bytes()).or_default();
                begun.push((beginning, rest));
            }
        }
        Self {
            areas,
            shown,
            names,
            begun,
            folders: Vec::new(),
            followed: 0,
        }
    }

    pub(super) fn into_areas(self) -> Vec<Area> {
        self.areas
    }

    pub(super) fn run(&mut self, home_secrets: &[HomeSecret]) -> Searched {
        for home_secret in home_secrets {
            self.hide_target(&home_secret.real, &home_secret.path())?;
        }
        for area in 0..self.areas.len() {
            if !self.is_shown(&self.areas[area].source) {
                self.folders.push(Folder {
                    area,
                    ..Folder::default()
                });
            }
        }
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        while let Some(folder) = self.folders.pop() {
            if self.areas[folder.area].is_covered_with_its_directory(&folder.path) {
                continue;
            }
            self.look(&folder, &mut buffer)?;
        }
        Ok(())
    }

    fn is_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|shown| path.starts_with(shown))
    }

    /// How many names above an entry make it a secret, if it is called like one.
    fn secret_below(&self, folder: &Folder, name: &[u8]) -> Option<usize> {
        let above = self.names.get(name)?;
        let folder = self.areas[folder.area].source.join(&folder.path);
        let above = above.iter().filter(|above| folder.ends_with(above));
        above.map(|above| above.components().count()).max()
    }

    fn look(&mut self, folder: &Folder, buffer: &mut [MaybeUninit<u8>]) -> Searched {
        let area = folder.area;
        let failed = |error: Errno| (area, Problem::Io(folder.path.clone(), error.into()));
        let opened = match self.areas[area].open_folder(&folder.path) {
            Ok(opened) => opened,
            // Gone, or replaced, since it was seen.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error @ (Errno::ACCESS | Errno::PERM)) => {
                return self.hide_closed(area, &folder.path, error);
            }
            Err(error) => return Err(failed(error)),
        };
        let mut entries = RawDir::new(&opened, buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(failed(error)),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if !self.areas[area].count_entry() {
                return Err((area, Problem::Entries));
            }
            let secret = match folder.secret {
                true => Some(0),
                false => self.secret_below(folder, name.to_bytes()),
            };
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    // It can be listed, but not entered.
                    Err(error) => return self.hide_closed(area, &folder.path, error),
                },
                kind => kind,
            };
            let link = kind == FileType::Symlink;
            // Mounts don't keep programs from writing to one.
            let fifo = kind == FileType::Fifo && self.areas[area].read_only;
            if secret.is_none()
                && kind != FileType::Directory
                && !fifo
                && !(link && self.begun.contains_key(name.to_bytes()))
            {
                continue;
            }
            let path = folder.path.join(OsStr::from_bytes(name.to_bytes()));
            let whole = self.areas[area].source.join(&path);
            if self.is_shown(&whole) {
                continue;
            }
            match (secret, kind) {
                (Some(_), FileType::Symlink) => self.follow(area, &whole)?,
                (None, FileType::Symlink) => {
                    for rest in self.rest_of(&whole, name.to_bytes()) {
                        self.follow(area, &whole.join(rest))?;
                    }
                }
                (Some(_), FileType::Directory) if self.holds_shown(&whole) => {
                    self.look_into(area, path);
                }
                (Some(above), _) => self.hide_named(area, &path, above)?,
                _ if fifo => self.hide(area, &path, HiddenReason::Fifo).map(drop)?,
                _ if path.as_os_str().len() > LONGEST => {
                    self.hide(area, &path, HiddenReason::Depth).map(drop)?;
                }
                _ => self.folders.push(Folder {
                    area,
                    path,
                    secret: false,
                }),
            }
        }
        Ok(())
    }

    /// What is a secret below a link that is called like the directory of one.
    fn rest_of(&self, link: &Path, name: &[u8]) -> Vec<&'static str> {
        let begun = self.begun.get(name).into_iter().flatten();
        let begun = begun.filter(|(beginning, _)| link.ends_with(beginning));
        begun.map(|(_, rest)| *rest).collect()
    }

    /// Whether something at or below is shown by its own name.
    fn holds_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|shown| shown.starts_with(path))
    }

    fn hide_named(&mut self, area: usize, path: &Path, above: usize) -> Searched {
        let parts = || path.ancestors().skip(1).take(above);
        let parts = || parts().filter(|part| !part.as_os_str().is_empty());
        // Where a name can't be pinned, the directory that it needs is hidden as a whole.
        if self.areas[area].widens
            && let Some(top) = parts().last()
            && !self.holds_shown(&self.areas[area].source.join(top))
        {
            return self.hide(area, top, HiddenReason::Holds(1)).map(drop);
        }
        self.hide(area, path, HiddenReason::Name)?;
        parts().for_each(|part| self.areas[area].pin(part));
        Ok(())
    }

    /// Hides what a link leads to, in whatever mount that is, and keeps the link.
    fn follow(&mut self, found_in: usize, link: &Path) -> Searched {
        let (way, cost) = links::way(link);
        self.followed += cost;
        if self.followed > MOST_FOLLOWED {
            return Err((found_in, Problem::Links));
        }
        let Some(way) = way else {
            return Ok(());
        };
        if !self.hide_target(&way.found, link)? {
            return Ok(());
        }
        for link in way.links {
            for area in 0..self.areas.len() {
                let Some(below) = self.areas[area].writable_below(&link) else {
                    continue;
                };
                if self.hide(area, &below, HiddenReason::Link(link.clone()))? {
                    self.areas[area].pin_above(&below);
                }
            }
        }
        Ok(())
    }

    /// Says whether it lies in a mount.
    fn hide_target(&mut self, target: &Path, link: &Path) -> Searched<bool> {
        if self.is_shown(target) {
            return Ok(false);
        }
        let mut found = false;
        for area in 0..self.areas.len() {
            // Nothing could be shown of a mount that is hidden itself.
            let below = match target.strip_prefix(&self.areas[area].source) {
                Ok(below) if !below.as_os_str().is_empty() => below.to_owned(),
                _ => continue,
            };
            found = true;
            let new = match self.holds_shown(target) {
                true => self.look_into(area, below.clone()),
                false => self.hide(area, &below, HiddenReason::Link(link.to_owned()))?,
            };
            if new {
                self.areas[area].pin_above(&below);
            }
        }
        Ok(found)
    }

    /// Has all in a secret hidden but what is shown by its name.
    fn look_into(&mut self, area: usize, path: PathBuf) -> bool {
        let new = self.areas[area].begin_part(&path);
        if new {
            self.folders.push(Folder {
                area,
                path,
                secret: true,
            });
        }
        new
    }

    /// Says whether it was not hidden before.
    fn hide(&mut self, area: usize, path: &Path, reason: HiddenReason) -> Searched<bool> {
        let hidden = self.areas[area].hide(path, reason, self.shown);
        hidden.map_err(|problem| (area, problem))
    }

    /// Hides a directory whose entries can't be looked at: the code inside may be able to open it up.
    fn hide_closed(&mut self, area: usize, folder: &Path, error: Errno) -> Searched {
        let hidden = self.areas[area].hide_closed(folder, error, self.shown);
        hidden.map(drop).map_err(|problem| (area, problem))
    }
}
