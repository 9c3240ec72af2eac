//! Host directories in a container.

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bollard::models::{
    Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountTmpfsOptions, MountType,
};
use brig_sandbox::plan::{CheckedMount, HiddenKind};
use brig_sandbox::{Error, Plan, Result};
use brig_wire::ExpectedMount;

use crate::engine_files;
use crate::file_cache;
use crate::hardening::Parts;
use crate::lookup;
use crate::runtime::{Kind, Runtime};
use crate::user::ContainerUser;

pub(crate) const WORKSPACE: &str = "/workspace";

/// Where the guest finds the file that only this machine has.
pub(crate) const NONCE: &str = "/.brig/nonce";

/// What is mounted in a container. `None` if nothing is.
pub(crate) fn all(parts: &Parts<'_>) -> Result<Option<Vec<Mount>>> {
    let mut all = binds(parts.plan, parts.user, parts.local)?;
    if let Some(directory) = parts.lookup {
        all.extend(lookup::mounts(directory, parts.plan));
    }
    all.extend(parts.cache.map(|volume| file_cache::mount(volume, true)));
    all.extend(covers(parts)?);
    let nonce = parts.nonce.map(|path| (path.to_owned(), NONCE));
    let of_engine = parts
        .engine_files
        .into_iter()
        .flat_map(engine_files::mounted)
        .filter(|(_, target)| {
            let mut mounts = parts.plan.mounts().iter();
            !mounts.any(|mount| mount.target == Path::new(target))
        });
    for (path, target) in nonce.into_iter().chain(of_engine) {
        let source = path.to_str().ok_or_else(|| not_utf8(&path))?;
        all.push(bound(source, target, true));
    }
    Ok((!all.is_empty()).then_some(all))
}

/// The requested directories. Fails for what the container could not use.
pub(crate) fn binds(plan: &Plan, user: ContainerUser, local: bool) -> Result<Vec<Mount>> {
    let mut binds = Vec::new();
    for mount in plan.workspace().into_iter().chain(plan.mounts()) {
        binds.push(bind(mount, user, local)?);
    }
    Ok(binds)
}

/// What the guest has to find, to detect replaced directories. Not with a kernel of its own, where inodes
/// differ.
pub(crate) fn expected(runtime: &Runtime, plan: &Plan) -> Vec<ExpectedMount> {
    if runtime.kind != Kind::Plain {
        return Vec::new();
    }
    let mounts = plan.workspace().into_iter().chain(plan.mounts());
    let expected = |mount: &CheckedMount| ExpectedMount {
        target: mount.target.to_string_lossy().into_owned(),
        identity: (mount.device, mount.inode),
        writable: mount.writable,
    };
    mounts.map(expected).collect()
}

/// The host directories that can be written. `None`: the root can be, too.
pub(crate) fn writable(plan: &Plan) -> Option<Vec<String>> {
    let mounts = plan.workspace().into_iter().chain(plan.mounts());
    let writable = mounts.filter(|mount| mount.writable);
    let targets = writable.map(|mount| mount.target.to_string_lossy().into_owned());
    plan.read_only_root().then(|| targets.collect())
}

/// For guests that can't check: verifies that the mounted directories are still the checked ones.
pub(crate) fn verify_unchanged(plan: &Plan) -> Result<()> {
    let mut mounts = plan.workspace().into_iter().chain(plan.mounts());
    mounts.try_for_each(|mount| look(mount).map(drop))
}

/// An empty file or directory over each secret in a mount.
fn covers(parts: &Parts<'_>) -> Result<Vec<Mount>> {
    let plan = parts.plan;
    let mut covers = Vec::new();
    for mount in plan.workspace().into_iter().chain(plan.mounts()) {
        for hidden in &mount.hidden {
            let target = mount.target.join(&hidden.path);
            let Some(target) = target.to_str() else {
                return Err(Error::MountRefused {
                    path: mount.source.join(&hidden.path).display().to_string(),
                    problem: "it is a secret that an engine cannot hide: its path is not UTF-8"
                        .into(),
                });
            };
            covers.push(cover(target, hidden.kind == HiddenKind::Directory, parts)?);
        }
    }
    Ok(covers)
}

fn cover(target: &str, folder: bool, parts: &Parts<'_>) -> Result<Mount> {
    let mut cover = Mount {
        target: Some(target.into()),
        read_only: Some(true),
        ..Mount::default()
    };
    // Podman would copy what is to be hidden into a tmpfs.
    if let (true, Some(files)) = (folder, parts.engine_files) {
        let empty = engine_files::empty(files);
        let source = empty.to_str().ok_or_else(|| not_utf8(&empty))?;
        return Ok(bound(source, target, true));
    }
    if folder {
        cover.typ = Some(MountType::TMPFS);
        cover.tmpfs_options = Some(MountTmpfsOptions {
            size_bytes: Some(4096),
            mode: Some(0o555),
            ..MountTmpfsOptions::default()
        });
        return Ok(cover);
    }
    let source = match parts.plan.state() {
        Some(state) => empty_file(state)?,
        None => "/dev/null".into(),
    };
    Ok(bound(&source, target, true))
}

/// The engine refuses a source that is missing. With `Binds` it would make it, as root. Private: later mounts
/// on either side don't reach the other. Whether mounts below are read-only too depends on the engine and its
/// runtime, so the guest checks that.
fn bound(source: &str, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.into()),
        target: Some(target.into()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// An empty file that nobody writes to.
fn empty_file(state: &Path) -> Result<String> {
    let path = state.join("empty");
    let failed = |error| Error::io(format!("make {}", path.display()), error);
    if !path.is_file() {
        std::fs::create_dir_all(state).map_err(failed)?;
        std::fs::File::create(&path).map_err(failed)?;
    }
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| not_utf8(&path))
}

fn not_utf8(path: &Path) -> Error {
    Error::InvalidConfig {
        what: "path",
        problem: format!("`{}` is not UTF-8", path.display()),
    }
}

/// A file with random content, which is removed when this is dropped. An engine that mounts it has the files of
/// this machine: a Unix socket may lead to another one.
#[derive(Debug)]
pub(crate) struct NonceFile {
    path: PathBuf,
    content: String,
}

impl NonceFile {
    /// Only if the plan mounts something of this machine.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Self>> {
        if plan.workspace().is_none() && plan.mounts().is_empty() {
            return Ok(None);
        }
        let folder = plan.state().map_or_else(std::env::temp_dir, Path::to_owned);
        let path = folder.join(format!("nonce-{}", uuid::Uuid::new_v4().simple()));
        let content = uuid::Uuid::new_v4().simple().to_string();
        let failed = |error| Error::io(format!("make {}", path.display()), error);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path);
        let mut file = file.map_err(failed)?;
        // From here on it is removed if something fails.
        let nonce = Self { path, content };
        let failed = |error| Error::io(format!("write {}", nonce.path.display()), error);
        // The caller's umask may have hidden it from the container's user.
        file.set_permissions(std::fs::Permissions::from_mode(0o444))
            .and_then(|()| file.write_all(nonce.content.as_bytes()))
            .map_err(failed)?;
        Ok(Some(nonce))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the guest has to find.
    pub(crate) fn expected(&self) -> brig_wire::Nonce {
        brig_wire::Nonce {
            path: NONCE.into(),
            content: self.content.clone(),
        }
    }
}

impl Drop for NonceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn look(mount: &CheckedMount) -> Result<Metadata> {
    let refuse = |problem: String| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem,
    };
    let found =
        std::fs::symlink_metadata(&mount.source).map_err(|error| refuse(error.to_string()))?;
    if (found.dev(), found.ino()) == (mount.device, mount.inode) {
        Ok(found)
    } else {
        Err(refuse("it was replaced after it was checked".into()))
    }
}

fn bind(mount: &CheckedMount, user: ContainerUser, local: bool) -> Result<Mount> {
    let refuse = |problem: &str| Error::MountRefused {
        path: mount.source.display().to_string(),
        problem: problem.into(),
    };
    if !local {
        return Err(refuse(
            "the engine is on another machine, which has other files",
        ));
    }
    let found = look(mount)?;
    if mount.writable
        && let Some(problem) = user.problem(&found)
    {
        return Err(refuse(&problem));
    }
    let (Some(source), Some(target)) = (mount.source.to_str(), mount.target.to_str()) else {
        return Err(refuse("an engine accepts only UTF-8 paths"));
    };
    Ok(bound(source, target, !mount.writable))
}
