//! What an image says about how its programs run, and what of it is not used.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use brig_sandbox::{Plan, env};

use crate::backend::Progress;
use crate::image::Image;
use crate::mounts::WORKSPACE;
use crate::user::{ContainerUser, Ids};

/// Variables of an image that Brig sets itself.
const OWN_VARIABLES: [&str; 4] = ["HOME", "USER", "LOGNAME", "PYTHONUNBUFFERED"];

/// Variables of the usual Python images that say what they are made of. Nothing reads them.
const DESCRIPTIONS: [&str; 6] = [
    "PYTHON_VERSION",
    "PYTHON_SHA256",
    "PYTHON_PIP_VERSION",
    "PYTHON_SETUPTOOLS_VERSION",
    "PYTHON_GET_PIP_URL",
    "PYTHON_GET_PIP_SHA256",
];

/// How much is listed.
const LISTED: usize = 8;

/// The images whose unused defaults were reported.
#[derive(Debug, Default)]
pub(crate) struct ReportedImages(Mutex<HashSet<String>>);

impl ReportedImages {
    /// Reports which defaults of an image are not used, once for each image.
    pub(crate) fn report(
        &self,
        progress: Option<&Progress>,
        plan: &Plan,
        image: &Image,
        user: &ContainerUser,
    ) {
        let Some(progress) = progress else { return };
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(image.id.clone()) {
            for line in unused(image, user, start_in(plan, image).as_deref()) {
                progress.tell(&line);
            }
        }
    }
}

/// Where commands start that say nothing about it: where the image says, if nobody can have put a file into the
/// workspace.
pub(crate) fn start_in(plan: &Plan, image: &Image) -> Option<String> {
    let unused = !plan.is_saved() && plan.workspace().is_none();
    (unused && is_path(&image.workdir)).then(|| image.workdir.clone())
}

fn is_path(workdir: &str) -> bool {
    workdir.starts_with('/') && !workdir.contains('\0')
}

fn unused(image: &Image, user: &ContainerUser, start_in: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    let name = image.user.as_str();
    let root = matches!(name.split(':').next(), None | Some("" | "0" | "root"));
    if !root && Ids::of_image(name) != Some(user.inside) {
        let uid = user.inside.uid;
        let why = match Ids::of_image(name) {
            None => "only a number is used",
            Some(_) => {
                "with this engine that id is a user of the machine, or not the owner of the mounted directories"
            }
        };
        lines.push(format!(
            "the image's USER {} is not used ({why}); programs run as {uid}",
            name.escape_debug()
        ));
    }
    let workdir = image.workdir.trim_end_matches('/');
    if !workdir.is_empty() && workdir != WORKSPACE && start_in.is_none() {
        lines.push(format!(
            "the image's WORKDIR is not used: programs start in {WORKSPACE}; to start there, use --cwd {}",
            workdir.escape_debug()
        ));
    }
    let refused = image.env.iter().filter(|(name, value)| {
        let name = name.as_str();
        // Its `PATH` is used as it is.
        if name == "PATH" {
            return false;
        }
        let refused = || env::check(name, value).is_err() && !DESCRIPTIONS.contains(&name);
        OWN_VARIABLES.contains(&name) || refused()
    });
    let entrypoint = image.entrypoint.first().map(|first| ("ENTRYPOINT", first));
    let others = refused
        .map(|(name, _)| ("ENV", name))
        .chain(entrypoint)
        .chain(image.volumes.iter().map(|volume| ("VOLUME", volume)));
    let others: Vec<String> = others
        .map(|(kind, what)| format!("{kind} {}", what.escape_debug()))
        .collect();
    if let Some(more) = others.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let first = others[..LISTED].join(", ");
        lines.push(format!("of the image is not used: {first} and {more} more"));
    } else if !others.is_empty() {
        lines.push(format!("of the image is not used: {}", others.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(image: &Image, inside: Ids) -> Vec<String> {
        unused(image, &ContainerUser::with(inside), None)
    }

    #[test]
    fn what_is_not_used_is_told() {
        let count = |user: &str, workdir: &str, inside| {
            let image = Image {
                user: user.into(),
                workdir: workdir.into(),
                ..Image::default()
            };
            told(&image, inside).len()
        };
        let nobody = Ids::NOBODY;
        for user in ["", "0", "root", "0:0", "root:daemon", "65534:65534"] {
            assert_eq!(count(user, "/", nobody), 0, "{user}");
        }
        let own = Ids { uid: 1000, gid: 7 };
        assert_eq!(count("1000:7", "/workspace/", own), 0);
        assert_eq!(count("1000:7", "/workspace", nobody), 1);
        assert_eq!(count("app", "/app", nobody), 2);
        let image = Image {
            workdir: "/app".into(),
            ..Image::default()
        };
        let user = ContainerUser::with(nobody);
        assert_eq!(unused(&image, &user, Some("/app")), [""; 0], "it is used");
    }

    #[test]
    fn what_is_not_used_is_told_in_one_line() {
        let pair = |name: &str| (name.to_owned(), "x".to_owned());
        let mut image = Image {
            env: ["PATH", "GREETING", "PYTHON_VERSION", "LD_PRELOAD", "HOME"]
                .map(pair)
                .into(),
            entrypoint: vec!["/run\n.sh".into(), "x".into()],
            volumes: vec!["/data".into()],
            ..Image::default()
        };
        assert_eq!(
            told(&image, Ids::NOBODY),
            [
                "of the image is not used: ENV LD_PRELOAD, ENV HOME, ENTRYPOINT /run\\n.sh, VOLUME /data"
            ]
        );
        image.volumes = (0..LISTED).map(|number| format!("/{number}")).collect();
        let lines = told(&image, Ids::NOBODY);
        assert!(lines[0].ends_with(" and 3 more"), "{lines:?}");
    }
}
