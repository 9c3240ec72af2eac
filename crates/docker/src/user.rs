//! The user of a container: nobody, or, where host directories are mounted, the user who owns them, or the one
//! that the image names, where its id means nothing outside. Never root, inside or outside.

use std::os::unix::fs::MetadataExt;

use brig_sandbox::Plan;
use brig_sandbox::plan::CheckedMount;

use crate::engine::Facts;
use crate::image::Image;
use crate::runtime::{Kind, Runtime};

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub uid: u32,
    pub gid: u32,
}

impl Ids {
    /// The user and group `nobody`.
    pub(crate) const NOBODY: Self = Self {
        uid: 65534,
        gid: 65534,
    };

    /// Of the `USER` of an image: numbers that every user namespace of an engine has. Names are only known inside.
    pub(crate) fn of_image(user: &str) -> Option<Self> {
        let (uid, gid) = match user.split_once(':') {
            Some((uid, gid)) => (uid, Some(gid)),
            None => (user, None),
        };
        let number = |text: &str| text.parse().ok().filter(|id| *id <= Self::NOBODY.uid);
        let uid = number(uid).filter(|uid| *uid != 0)?;
        let gid = gid.map_or(Some(Self::NOBODY.gid), number)?;
        Some(Self { uid, gid }.without_root())
    }

    /// Not with the group of root.
    fn without_root(self) -> Self {
        let gid = if self.gid == 0 {
            Self::NOBODY.gid
        } else {
            self.gid
        };
        Self { gid, ..self }
    }
}

/// How an engine maps the ids of a container to those of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    /// They are the same.
    None,
    /// To a range that nobody else has (`userns-remap`).
    Range,
    /// Root is the user who runs the engine, and the others are a range.
    Rootless(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerUser {
    pub inside: Ids,
    /// On the machine, if that is known.
    outside: Option<Ids>,
}

impl ContainerUser {
    /// `engine`: who runs it, if its socket is on this machine.
    pub(crate) fn of(
        plan: &Plan,
        facts: &Facts,
        runtime: &Runtime,
        engine: Option<u32>,
        image: &Image,
    ) -> Self {
        let mapping = match engine {
            Some(uid) if facts.rootless => Mapping::Rootless(uid),
            Some(_) if !facts.has("userns") => Mapping::None,
            _ => Mapping::Range,
        };
        let own_kernel = runtime.kind != Kind::Plain;
        let nobody = Self {
            inside: Ids::NOBODY,
            outside: (mapping == Mapping::None).then_some(Ids::NOBODY),
        };
        // Elsewhere it would be a user of the machine, with its limits and its files.
        let apart = own_kernel || facts.rootless || facts.has("userns");
        let caller = Ids {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let Some(wanted) = wanted(plan, caller) else {
            let of_image = Ids::of_image(&image.user).filter(|_| apart);
            return of_image.map_or(nobody, Self::with);
        };
        inside(mapping, own_kernel, wanted).map_or(nobody, |inside| Self {
            inside,
            outside: Some(wanted),
        })
    }

    /// Of whom nothing is known outside.
    pub(crate) fn with(inside: Ids) -> Self {
        Self {
            inside,
            outside: None,
        }
    }

    /// As the engine takes it.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.inside.uid, self.inside.gid)
    }

    /// Why this user can't write to a directory. `None` if it can, as far as that can be said.
    pub(crate) fn problem(&self, found: &std::fs::Metadata) -> Option<String> {
        let (owner, mode) = (found.uid(), found.mode());
        let may = |ids: Ids| {
            (ids.uid == owner && mode & 0o200 != 0) || (ids.gid == found.gid() && mode & 0o020 != 0)
        };
        if mode & 0o002 != 0 || self.outside.is_some_and(may) {
            return None;
        }
        Some(if owner == 0 {
            "it belongs to root, and a container never runs as root: use the native backend, which \
             maps ids, give it another owner (chown), let others write (chmod o+w), or mount it \
             read-only"
                .into()
        } else {
            let user = self.outside.map_or_else(
                || "an id that only the engine knows".to_owned(),
                |ids| format!("user {}", ids.uid),
            );
            format!(
                "it belongs to user {owner}, and the container runs as {user}: start Brig as the \
                 owner, on an engine that does not map its id; let others write (chmod o+w), or \
                 mount it read-only"
            )
        })
    }
}

/// Whose access to host directories a container is to have: the caller's. Root has them used by the owner of
/// the first that is writable.
fn wanted(plan: &Plan, caller: Ids) -> Option<Ids> {
    let mut mounts = plan.workspace().into_iter().chain(plan.mounts());
    if caller.uid != 0 {
        return mounts.next().map(|_| caller.without_root());
    }
    let writable = mounts.find(|mount| mount.writable);
    let owner = writable.and_then(owner).filter(|owner| owner.uid != 0)?;
    Some(owner.without_root())
}

fn owner(mount: &CheckedMount) -> Option<Ids> {
    let found = std::fs::symlink_metadata(&mount.source).ok()?;
    Some(Ids {
        uid: found.uid(),
        gid: found.gid(),
    })
}

/// Which ids in the container are these ids of the machine. `None`: none that it may have.
fn inside(mapping: Mapping, own_kernel: bool, wanted: Ids) -> Option<Ids> {
    match mapping {
        Mapping::None if wanted.uid != 0 => Some(wanted),
        // Root inside, without capabilities, and an ordinary user outside. The guest checks that, and can't in
        // a kernel of its own.
        Mapping::Rootless(engine) if engine == wanted.uid && engine != 0 && !own_kernel => {
            Some(Ids { uid: 0, gid: 0 })
        }
        Mapping::None | Mapping::Range | Mapping::Rootless(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Ids = Ids {
        uid: 1000,
        gid: 100,
    };
    const ROOT: Ids = Ids { uid: 0, gid: 0 };

    #[test]
    fn an_id_is_found_for_an_ordinary_user_or_not_at_all() {
        let of = |mapping, wanted| inside(mapping, false, wanted);
        assert_eq!(of(Mapping::None, ME), Some(ME));
        assert_eq!(of(Mapping::None, ROOT), None);
        assert_eq!(Ids { gid: 0, ..ME }.without_root().gid, 65534);
        assert_eq!(ME.without_root(), ME);
        assert_eq!(of(Mapping::Range, ME), None);
        assert_eq!(of(Mapping::Rootless(1000), ME), Some(ROOT));
        assert_eq!(of(Mapping::Rootless(1001), ME), None);
        // An engine that only says that it is rootless.
        assert_eq!(of(Mapping::Rootless(0), ROOT), None);
        assert_eq!(inside(Mapping::Rootless(1000), true, ME), None);
        assert_eq!(inside(Mapping::None, true, ME), Some(ME));
    }

    #[test]
    fn an_image_names_a_user_by_numbers() {
        let ids = |uid, gid| Some(Ids { uid, gid });
        for (user, expected) in [
            ("1000", ids(1000, 65534)),
            ("1000:100", ids(1000, 100)),
            ("1000:0", ids(1000, 65534)),
            ("0", None),
            ("0:5", None),
            ("65535", None),
            ("1000:70000", None),
            ("app", None),
            ("1000:app", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(Ids::of_image(user), expected, "{user}");
        }
    }

    #[test]
    fn a_directory_that_the_user_cannot_write_is_told() {
        let folder = tempfile::tempdir().expect("folder");
        let found = std::fs::metadata(folder.path()).expect("metadata");
        let own = Ids {
            uid: found.uid(),
            gid: found.gid(),
        };
        let user = |outside| ContainerUser {
            inside: Ids::NOBODY,
            outside,
        };
        assert_eq!(user(Some(own)).problem(&found), None);
        assert!(user(Some(Ids::NOBODY)).problem(&found).is_some());
        assert!(user(None).problem(&found).is_some());
    }
}
