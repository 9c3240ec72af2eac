//! What is hidden and pinned in one mount.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::collapse::{DEPTH, Room, collapse};
use super::search::{MOST_ENTRIES, Problem};
use crate::mounts::Known;
use crate::plan::{CheckedMount, Hidden, HiddenKind, HiddenReason, Pinned};

/// Of the paths of all that is hidden, and again of all that is pinned: they are sent to the guest in one
/// message together with all else.
pub(super) const MOST_BYTES: usize = 200 << 10;
/// What is found is cut back when it is this many times more.
const SLACK: usize = 4;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// One mount, while it is searched.
pub(super) struct Area {
    pub source: PathBuf,
    root: OwnedFd,
    /// Its share.
    room: Room,
    pub read_only: bool,
    /// Whether code could rename what is in it, and is kept from that by pins.
    pins: bool,
    /// Whether code could, and nothing can be pinned.
    pub widens: bool,
    hidden: BTreeMap<PathBuf, Hidden>,
    bytes: usize,
    pinned: BTreeSet<PathBuf>,
    pinned_bytes: usize,
    /// Directories that are hidden in place of what they hold.
    collapsed: HashSet<PathBuf>,
    /// Secrets of which a part is shown, looked at once, however many links lead there.
    in_part: HashSet<PathBuf>,
    seen: usize,
}

impl Area {
    /// Nothing if it is a file, or shown whatever it holds.
    pub(super) fn open(
        mount: &CheckedMount,
        known: &Known<'_>,
        room: Room,
    ) -> io::Result<Option<Self>> {
        let root = match openat(CWD, &mount.source, FOLDER, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOTDIR) => return Ok(None),
            Err(_) if known.shows(&mount.source) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Each path is sent with that of the mount and a few numbers.
        let beside = mount.target.as_os_str().len() + 16;
        let room = Room {
            count: room.count.min(room.bytes / beside),
            ..room
        };
        Ok(Some(Self {
            source: mount.source.clone(),
            root,
            room,
            read_only: !mount.writable,
            pins: mount.writable && known.hiding.pins,
            widens: mount.writable && !known.hiding.pins,
            hidden: BTreeMap::new(),
            bytes: 0,
            pinned: BTreeSet::new(),
            pinned_bytes: 0,
            collapsed: HashSet::new(),
            in_part: HashSet::new(),
            seen: 0,
        }))
    }

    pub(super) fn open_folder(&self, folder: &Path) -> rustix::io::Result<OwnedFd> {
        if folder.as_os_str().is_empty() {
            return openat(&self.root, ".", FOLDER, Mode::empty());
        }
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        openat2(&self.root, folder, FOLDER, Mode::empty(), resolve)
    }

    pub(super) fn count_entry(&mut self) -> bool {
        self.seen += 1;
        self.seen <= MOST_ENTRIES
    }

    /// Says whether this is the first time.
    pub(super) fn begin_part(&mut self, path: &Path) -> bool {
        self.in_part.insert(path.to_owned())
    }

    pub(super) fn is_covered_with_its_directory(&self, path: &Path) -> bool {
        let mut at = PathBuf::new();
        let mut parts = path.components().take(DEPTH);
        !self.collapsed.is_empty()
            && parts.any(|part| {
                at.push(part);
                self.collapsed.contains(&at)
            })
    }

    /// The path below the mount, if code could change it there and can be kept from that.
    pub(super) fn writable_below(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.source).ok()?;
        (self.pins && !below.as_os_str().is_empty()).then(|| below.to_owned())
    }

    pub(super) fn pin(&mut self, folder: &Path) {
        if self.pins && !folder.as_os_str().is_empty() && !self.pinned.contains(folder) {
            self.pinned_bytes += folder.as_os_str().len();
            self.pinned.insert(folder.to_owned());
        }
    }

    /// Every directory above.
    pub(super) fn pin_above(&mut self, path: &Path) {
        path.ancestors().skip(1).for_each(|folder| self.pin(folder));
    }

    /// Says whether it was not hidden before.
    pub(super) fn hide(
        &mut self,
        path: &Path,
        reason: HiddenReason,
        shown: &[PathBuf],
    ) -> Result<bool, Problem> {
        // Nothing could be shown of a directory whose own entry is hidden.
        if path.as_os_str().is_empty() || self.is_covered_with_its_directory(path) {
            return Ok(false);
        }
        if let Some(hidden) = self.hidden.get_mut(path) {
            // Its own name says most.
            if reason == HiddenReason::Name {
                hidden.reason = reason;
            }
            return Ok(false);
        }
        match self.look_at(path) {
            Ok(Some(stat)) => self.add(path, &stat, reason),
            Ok(None) => return Ok(false),
            Err(error) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                return self.hide_closed(folder, error, shown);
            }
        }
        if !self.fits(self.room.times(SLACK)) {
            self.cut_back(shown)?;
        }
        Ok(true)
    }

    pub(super) fn hide_closed(
        &mut self,
        folder: &Path,
        error: Errno,
        shown: &[PathBuf],
    ) -> Result<bool, Problem> {
        if folder.as_os_str().is_empty() {
            return Err(Problem::Io(PathBuf::new(), error.into()));
        }
        self.hide(folder, HiddenReason::Closed, shown)
    }

    /// Nothing if it is gone, or was replaced, since it was seen.
    fn look_at(&self, path: &Path) -> Result<Option<Stat>, Errno> {
        match statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, path: &Path, stat: &Stat, reason: HiddenReason) {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => HiddenKind::Directory,
            FileType::Symlink => HiddenKind::Link,
            _ => HiddenKind::File,
        };
        let hidden = Hidden {
            path: path.to_owned(),
            kind,
            device: stat.st_dev,
            inode: stat.st_ino,
            reason,
        };
        self.bytes += path.as_os_str().len();
        self.hidden.insert(path.to_owned(), hidden);
    }

    /// Hides directories in place of what they hold, until there is room.
    fn cut_back(&mut self, shown: &[PathBuf]) -> Result<(), Problem> {
        self.drop_covered();
        if !self.room.has(self.hidden.len(), self.bytes) {
            self.collapse(self.hidden.keys().cloned().collect(), shown)?;
        }
        if !self.room.has(self.pinned.len(), self.pinned_bytes) {
            self.collapse(self.pinned.iter().cloned().collect(), shown)?;
        }
        match self.fits(self.room) {
            true => Ok(()),
            false => Err(Problem::Hidden),
        }
    }

    fn fits(&self, room: Room) -> bool {
        room.has(self.hidden.len(), self.bytes) && room.has(self.pinned.len(), self.pinned_bytes)
    }

    fn collapse(&mut self, paths: Vec<PathBuf>, shown: &[PathBuf]) -> Result<(), Problem> {
        let holds_shown = |path: &Path| {
            let whole = self.source.join(path);
            shown.iter().any(|shown| shown.starts_with(&whole))
        };
        let directories = collapse(paths, self.room, holds_shown).ok_or(Problem::Hidden)?;
        for directory in directories {
            let from = self.hidden.range(directory.clone()..);
            let below = from.take_while(|(path, _)| path.starts_with(&directory));
            let secrets = below.map(|(_, hidden)| match hidden.reason {
                HiddenReason::Holds(count) => count,
                _ => 1,
            });
            let count = secrets.sum::<usize>().max(1);
            match self.look_at(&directory) {
                Ok(Some(stat)) => self.add(&directory, &stat, HiddenReason::Holds(count)),
                Ok(None) => {}
                Err(error) => return Err(Problem::Io(directory, error.into())),
            }
            self.collapsed.insert(directory);
        }
        self.drop_covered();
        Ok(())
    }

    /// What is hidden with its directory needs no cover and no pin, and has no place for one.
    fn drop_covered(&mut self) {
        let mut kept: BTreeMap<PathBuf, Hidden> = BTreeMap::new();
        for (path, hidden) in std::mem::take(&mut self.hidden) {
            let with = |(last, _): (&PathBuf, _)| path.starts_with(last);
            if !kept.last_key_value().is_some_and(with) {
                kept.insert(path, hidden);
            }
        }
        self.bytes = kept.keys().map(|path| path.as_os_str().len()).sum();
        // None of those that are kept lies in another: the last before a pin is the one that may hold it.
        self.pinned.retain(|pin| {
            let mut before = kept.range::<PathBuf, _>(..=pin);
            before
                .next_back()
                .is_none_or(|(last, _)| !pin.starts_with(last))
        });
        self.pinned_bytes = self.pinned.iter().map(|pin| pin.as_os_str().len()).sum();
        self.hidden = kept;
    }

    fn pin_above_all(&mut self, shown: &[PathBuf]) -> Result<(), Problem> {
        loop {
            let before = self.collapsed.len();
            for path in self.hidden.keys().cloned().collect::<Vec<_>>() {
                if self.hidden.contains_key(&path) {
                    self.pin_above(&path);
                }
                if !self.fits(self.room.times(SLACK)) {
                    self.cut_back(shown)?;
                }
            }
            self.cut_back(shown)?;
            // What is hidden in place of others has directories above it, too.
            if self.collapsed.len() == before {
                return Ok(());
            }
        }
    }

    /// What has to be hidden, and what has to be pinned for that.
    pub(super) fn finish(
        mut self,
        shown: &[PathBuf],
    ) -> Result<(Vec<Hidden>, Vec<Pinned>), Problem> {
        self.cut_back(shown)?;
        // What is shown is so by its path: nothing that is hidden may be moved there.
        if self.pins && shown.iter().any(|shown| shown.starts_with(&self.source)) {
            self.pin_above_all(shown)?;
        }
        let mut pinned = Vec::with_capacity(self.pinned.len());
        for path in std::mem::take(&mut self.pinned) {
            match self.look_at(&path) {
                Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
                    pinned.push(Pinned {
                        path,
                        device: stat.st_dev,
                        inode: stat.st_ino,
                    });
                }
                Ok(_) => {}
                Err(error) => return Err(Problem::Io(path, error.into())),
            }
        }
        Ok((self.hidden.into_values().collect(), pinned))
    }
}
