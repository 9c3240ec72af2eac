//! Which folders and files of the host a session may see. Paths are resolved first and compared
//! by subtree; what was checked is pinned by device and inode, so that a link swapped afterwards
//! leads nowhere.

pub(crate) mod below;
pub(crate) mod links;
pub(crate) mod python;
mod rules;
mod secrets;
mod source;
mod target;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use self::python::Python;
use crate::directories::Private;
use crate::plan::CheckedMount;
use crate::{Error, Result, SessionConfig};

const MAX_MOUNTS: usize = 64;
const WORKSPACE: &str = "/workspace";

/// The host directories that a session may see.
#[derive(Debug)]
pub(crate) struct CheckedMounts {
    pub mounts: Vec<CheckedMount>,
    pub workspace: Option<CheckedMount>,
    pub rootfs: Option<CheckedMount>,
    pub python: Option<Python>,
}

/// What a backend can do about secrets in mounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hiding {
    /// [`crate::Backend::pins_names`].
    pub pins: bool,
    /// [`crate::Backend::most_hidden`].
    pub most: usize,
}

/// Nothing that is mounted may overlap with a directory in `private`.
pub(crate) fn check(
    config: &SessionConfig,
    private: &[Private],
    hiding: Hiding,
) -> Result<CheckedMounts> {
    if config.mounts.len() > MAX_MOUNTS {
        let problem = format!("more than {MAX_MOUNTS}");
        return Err(Error::InvalidConfig {
            what: "mounts",
            problem,
        });
    }
    let mut taken: Vec<PathBuf> = Vec::new();
    if config.workspace.is_some() {
        taken.push(WORKSPACE.into());
    }
    let named = config.mounts.iter().map(|spec| &spec.source);
    let named = named.chain(&config.workspace).chain(&config.python);
    let known = Known::new(private, &config.show_secrets, named, hiding);
    let mut mounts = Vec::with_capacity(config.mounts.len());
    for spec in &config.mounts {
        let target = target::check(&spec.target, &taken)?;
        taken.push(target.clone());
        let found = source::check(&spec.source, &known)?;
        mounts.push(found.mount(target, spec.writable));
    }
    let mut workspace = match &config.workspace {
        Some(path) => Some(source::check_folder(path, &known)?.mount(WORKSPACE.into(), true)),
        None => None,
    };
    // A root is what a machine is made of: what is in it is not looked through.
    let rootfs = match &config.rootfs {
        Some(path) => Some(source::check_rootfs(path, &known)?.mount("/".into(), false)),
        None => None,
    };
    let mut python = match &config.python {
        Some(path) => Some(python::check(path, &known)?),
        None => None,
    };
    // All together: a link in one may lead into another.
    let roots = python.iter_mut().flat_map(|python| &mut python.roots);
    let mut all: Vec<_> = mounts
        .iter_mut()
        .chain(&mut workspace)
        .chain(roots)
        .collect();
    secrets::note(&mut all, &known)?;
    Ok(CheckedMounts {
        mounts,
        workspace,
        rootfs,
        python,
    })
}

/// Whether a host directory may be mounted read-only, by the rules for all mounts, and what would be
/// hidden in it.
///
/// # Errors
///
/// [`Error::MountRefused`].
pub fn check_mount(folder: &Path, show_secrets: &[PathBuf]) -> Result<CheckedMount> {
    may_show(folder, &Private::of_user(), show_secrets)
}

/// A directory that a backend finds it needs.
pub(crate) fn may_show(
    folder: &Path,
    private: &[Private],
    show_secrets: &[PathBuf],
) -> Result<CheckedMount> {
    // It is not writable, and beside what the plan has.
    let hiding = Hiding {
        pins: false,
        most: 100,
    };
    let known = Known::new(private, show_secrets, [folder], hiding);
    let mut found = source::check_folder(folder, &known)?.mount(folder.to_owned(), false);
    secrets::note(&mut [&mut found], &known)?;
    Ok(found)
}

/// What all mounts of a session are judged by.
struct Known<'a> {
    private: &'a [Private],
    /// What is shown although it is a secret by its name.
    shown: Vec<PathBuf>,
    hiding: Hiding,
    home_secrets: OnceCell<Vec<source::HomeSecret>>,
}

impl<'a> Known<'a> {
    fn new<P: AsRef<Path>>(
        private: &'a [Private],
        show_secrets: &[PathBuf],
        named: impl IntoIterator<Item = P>,
        hiding: Hiding,
    ) -> Self {
        // By the path that the mounts have: without links. What is not there shows nothing, nor does
        // a link that code may have put there.
        let mut shown = Vec::new();
        if !show_secrets.is_empty() {
            let mounts = named.into_iter();
            let mounts = mounts.filter_map(|path| links::follow(path.as_ref()).ok());
            let mounts: Vec<PathBuf> = mounts.collect();
            let show = show_secrets.iter();
            shown.extend(show.filter_map(|path| links::follow_outside(path, &mounts)));
        }
        Self {
            private,
            shown,
            hiding,
            home_secrets: OnceCell::new(),
        }
    }

    fn shows(&self, path: &Path) -> bool {
        self.shown.iter().any(|shown| path.starts_with(shown))
    }

    /// Looked up once, and only where something is mounted.
    fn home_secrets(&self) -> &[source::HomeSecret] {
        self.home_secrets.get_or_init(source::secrets_in_homes)
    }
}

fn refuse<T>(path: &Path, problem: impl Into<String>) -> Result<T> {
    let path = path.display().to_string().escape_debug().to_string();
    Err(Error::MountRefused {
        path,
        problem: problem.into(),
    })
}

#[cfg(test)]
mod tests;
