//! The file of the user's configuration.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brig_hosts::Rule;
use brig_schema::{Compat, Format, Node, NodeKind, Problem, ProblemLog, Value, parse};

use crate::edit::{self, NewEntry, quote};
use crate::error::{Error, Result};
use crate::lists::{self, Change, Changed, List};
use crate::source::{Disk, Source};
use crate::user::{ALIASES, Alias, UserConfig, check_alias};

/// How long another program may take to change the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// A configuration in a file. Changes replace the file as a whole, one after the other, whoever
/// makes them; what is not changed stays as it was written.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, and warnings about it. No file is an empty one; a file that
    /// can't be read is an error.
    pub fn load(&self, source: &dyn Source) -> Result<(UserConfig, Vec<Problem>)> {
        UserConfig::parse(&self.name(), &self.text(source)?)
    }

    /// Changes a list of hosts. `record` is called before the file is replaced; if it fails, the
    /// file stays as it is. If there is nothing to do, neither happens.
    pub fn change(
        &self,
        list: List,
        change: Change,
        rules: &[Rule],
        record: impl FnOnce(&Changed) -> Result<(), String>,
    ) -> Result<Changed> {
        self.locked(|text, config| {
            let own = list.of(config);
            let changed = lists::plan(own, change, rules);
            if changed.done.is_empty() {
                return Ok((None, changed));
            }
            let edited = lists::edited(text, list, own, change, &changed);
            let wanted = lists::wanted(own, change, &changed);
            let valid = |now: &UserConfig| list.of(now) == wanted;
            let edited = self.checked(text, edited, list.key(), valid)?;
            record(&changed).map_err(Error::Unrecorded)?;
            Ok((Some(edited), changed))
        })
    }

    /// Adds an alias, or replaces the one of that name.
    pub fn set_alias(&self, name: &str, alias: &Alias) -> Result<()> {
        check_alias(name)?;
        let path = alias.path.to_str().filter(|_| alias.path.is_absolute());
        let path = path
            .ok_or_else(|| Error::Alias(format!("`{}` cannot be written", alias.path.display())))?;
        let mut pairs = vec![("path", quote(path))];
        if let Some(sandbox) = alias.sandbox {
            pairs.push(("sandbox", sandbox.to_string()));
        }
        let entry = NewEntry::map(name, &pairs);
        self.locked(|text, config| {
            let without = match place(config, text, name) {
                Some(place) => edit::remove(text, ALIASES, &[place]),
                None => Some(text.to_owned()),
            };
            let edited = without.and_then(|text| edit::add(&text, ALIASES, &[entry]));
            let mut wanted = config.aliases().clone();
            wanted.insert(name.to_owned(), alias.clone());
            let valid = |now: &UserConfig| *now.aliases() == wanted;
            Ok((Some(self.checked(text, edited, ALIASES, valid)?), ()))
        })
    }

    /// Removes an alias. Says whether there was one.
    pub fn remove_alias(&self, name: &str) -> Result<bool> {
        self.locked(|text, config| {
            let Some(place) = place(config, text, name) else {
                return Ok((None, false));
            };
            let edited = edit::remove(text, ALIASES, &[place]);
            let valid = |now: &UserConfig| {
                let rest = config.aliases().iter().filter(|(other, _)| *other != name);
                now.aliases().iter().eq(rest)
            };
            Ok((Some(self.checked(text, edited, ALIASES, valid)?), true))
        })
    }

    /// Runs a change while nobody else changes the file.
    fn locked<T>(
        &self,
        change: impl FnOnce(&str, &UserConfig) -> Result<(Option<String>, T)>,
    ) -> Result<T> {
        let _lock = self.exclusive()?;
        let text = self.text(&Disk)?;
        let (config, _) = UserConfig::parse(&self.name(), &text)?;
        let text = String::from_utf8(text).map_err(|_| Error::Shape(self.name()))?;
        let (edited, answer) = change(&text, &config)?;
        if let Some(edited) = edited {
            replace(&self.path, &edited)?;
        }
        Ok(answer)
    }

    /// A changed text, if it has the wanted change and no other.
    fn checked(
        &self,
        before: &str,
        after: Option<String>,
        key: &str,
        valid: impl Fn(&UserConfig) -> bool,
    ) -> Result<String> {
        let after = after.ok_or_else(|| Error::Shape(self.name()))?;
        let now = UserConfig::parse(&self.name(), after.as_bytes());
        match now {
            Ok((now, _)) if valid(&now) && rest(before, key) == rest(&after, key) => Ok(after),
            _ => Err(Error::Shape(self.name())),
        }
    }

    /// Locks the directory, also against changes to the files next to the configuration.
    pub(crate) fn exclusive(&self) -> Result<File> {
        // Two links may lead to one file.
        let file = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = file.parent().unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(Error::unwritable(directory))?;
        let path = file.with_extension("yaml.lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&path).map_err(Error::unwritable(&path))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => return Err(Error::unwritable(&path)(error)),
                Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => {
                    return Err(Error::Busy(self.name()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn text(&self, source: &dyn Source) -> Result<Vec<u8>> {
        match source.read(&self.path) {
            Ok(text) => Ok(text),
            // A link that leads nowhere is not "no file".
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.path.is_symlink() => {
                Ok(Vec::new())
            }
            Err(error) => Err(Error::unreadable(&self.path, error)),
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Either the old text is there or the new one, whatever happens in between. After an error it is the old one, but for
/// [`Error::Unconfirmed`].
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let directory = put(path, text).map_err(Error::unwritable(path))?;
    let file = path.display().to_string();
    (directory.sync_all()).map_err(|source| Error::Unconfirmed { file, source })
}

/// Returns the directory, which is opened before anything is changed.
fn put(path: &Path, text: &str) -> io::Result<File> {
    // A link stays one: what it leads to is replaced.
    let target = match path.is_symlink() {
        true => std::fs::canonicalize(path)?,
        false => path.to_owned(),
    };
    let directory = File::open(target.parent().unwrap_or(Path::new(".")))?;
    // Always the same name, so that what a killed process left does not add up. Nobody else writes it: the lock is held.
    let new = target.with_added_extension("brig-new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let written = write_new(&new, text).and_then(|()| std::fs::rename(&new, &target));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.map(|()| directory)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The number of an alias in the order of the file.
fn place(config: &UserConfig, text: &str, name: &str) -> Option<usize> {
    config.aliases().get(name)?;
    let Some(NodeKind::Map(pairs)) = tree(text).map(|node| node.kind) else {
        return None;
    };
    let aliases = pairs.into_iter().find(|pair| pair.key == ALIASES)?;
    let NodeKind::Map(aliases) = aliases.value.kind else {
        return None;
    };
    aliases.iter().position(|pair| pair.key == name)
}

/// The contents of a text, without one key.
fn rest(text: &str, key: &str) -> Option<Vec<(String, Value)>> {
    match tree(text)?.kind {
        NodeKind::Map(pairs) => {
            let others = pairs.into_iter().filter(|pair| pair.key != key);
            Some(
                others
                    .map(|pair| (pair.key, pair.value.to_value()))
                    .collect(),
            )
        }
        // An empty file, and one that is not ours to change.
        NodeKind::Scalar(Value::Null) => Some(Vec::new()),
        _ => None,
    }
}

fn tree(text: &str) -> Option<Node> {
    parse(
        text.as_bytes(),
        Format::Yaml,
        Compat::Strict,
        &mut ProblemLog::new(""),
    )
}
