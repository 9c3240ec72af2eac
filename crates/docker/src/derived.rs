//! An image with the guest in it, derived once from each image that is used. Nothing of the host is mounted
//! for that, so it works with any image and any engine.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{CommitContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use brig_layers::hex;
use brig_sandbox::{Error, Result};
use brig_wire::DeniedPrograms;
use sha2::{Digest, Sha256};

use crate::archive::Archive;
use crate::engine::Engine;
use crate::image::Image;
use crate::staging::{Preparation, Staging};

/// The path of the guest in the container.
pub(crate) const GUEST: &str = "/.brig/guest";

/// On derived images: the digest of what was added.
pub(crate) const LABEL: &str = "brig.derived";
const BASE: &str = "brig.base";
/// The digest of everything that was added, with the stand-ins for denied programs.
const WHOLE: &str = "brig.whole";
const REPOSITORY: &str = "brig-derived";

/// Incremented with every change of the archive's layout.
const LAYOUT: u8 = 2;

/// The stand-in for denied programs, and the directory with links to it under their names.
const SHIM: &str = ".brig/shim";
pub(crate) const NAMES: &str = "/.brig/names";
/// The directory of the program that calls tools.
pub(crate) const TOOLS: &str = "/.brig/bin";

/// The digest of what this build adds to every image.
pub(crate) fn digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let programs = [
            brig_guest_image::GUEST,
            brig_guest_image::SHIM,
            brig_guest_image::TOOL,
        ];
        let mut hash = Sha256::new();
        hash.update([LAYOUT]);
        for program in programs {
            hash.update(Sha256::digest(program));
        }
        hex(&hash.finalize())
    })
}

/// The digest of that and of the paths of the stand-ins.
fn whole(denied: Option<&DeniedPrograms>) -> String {
    let mut hash = Sha256::new();
    hash.update(digest());
    if let Some(denied) = denied {
        for path in std::iter::once(SHIM.to_owned()).chain(stand_ins(denied)) {
            hash.update(b"\0");
            hash.update(path);
        }
    }
    hex(&hash.finalize())
}

fn stand_ins(denied: &DeniedPrograms) -> impl Iterator<Item = String> {
    let names = denied.names.iter().map(|name| format!("{NAMES}/{name}"));
    let covered = denied.covered.iter();
    names.chain(covered.map(|path| String::from_utf8_lossy(path).into_owned()))
}

/// The archive with everything that is added.
fn archive(denied: Option<&DeniedPrograms>) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.folder(".brig", 0o555);
    archive.file(".brig/guest", 0o555, brig_guest_image::GUEST);
    archive.folder(TOOLS.trim_start_matches('/'), 0o555);
    let tool = format!("{}/brig-tool", TOOLS.trim_start_matches('/'));
    archive.file(&tool, 0o555, brig_guest_image::TOOL);
    if let Some(denied) = denied {
        archive.file(SHIM, 0o555, brig_guest_image::SHIM);
        archive.folder(NAMES.trim_start_matches('/'), 0o555);
        for path in stand_ins(denied) {
            archive.link(path.trim_start_matches('/'), SHIM);
        }
    }
    archive.finish()
}

/// What is derived from one image.
struct Derivation {
    base: Image,
    denied: Option<DeniedPrograms>,
    /// The digest of what is added.
    whole: String,
    /// The tag of the image, which also names the container that it is made from.
    tag: String,
}

/// How often an image is prepared that is then not there: somebody may remove it at the wrong moment.
const MOST_PREPARED: u32 = 3;

/// The name of the image that is derived from this one. Created if it does not exist.
pub(crate) async fn ensure(
    engine: &Engine,
    base: &Image,
    denied: Option<&DeniedPrograms>,
) -> Result<String> {
    let whole = whole(denied);
    let mut tag = hex(&Sha256::digest(format!("{}\n{whole}", base.id)));
    tag.truncate(32);
    let staging = Staging::new(engine, &tag);
    let derivation = Arc::new(Derivation {
        base: base.clone(),
        denied: denied.cloned(),
        whole,
        tag,
    });
    let begun = Instant::now();
    let mut prepared = 0;
    while !derivation.exists(engine).await? {
        if prepared == MOST_PREPARED {
            return Err(Error::Setup {
                step: "prepare an image".into(),
                problem:
                    "the engine does not keep the prepared image, or another process replaces it"
                        .into(),
            });
        }
        match staging.prepare(derivation.clone()).await? {
            true => prepared += 1,
            false => staging.wait(begun.elapsed()).await?,
        }
    }
    Ok(derivation.name())
}

impl Derivation {
    fn name(&self) -> String {
        format!("{REPOSITORY}:{}", self.tag)
    }

    async fn exists(&self, engine: &Engine) -> Result<bool> {
        let name = self.name();
        let inspect = engine.docker.inspect_image(&name);
        let found = engine.find("inspect an image", inspect).await?;
        let labels = found
            .and_then(|found| found.config)
            .and_then(|config| config.labels);
        // Anyone can give an image that name, so its labels are checked.
        Ok(labels.is_some_and(|labels| {
            labels.get(WHOLE) == Some(&self.whole) && labels.get(BASE) == Some(&self.base.id)
        }))
    }
}

#[async_trait]
impl Preparation for Derivation {
    fn body(&self) -> ContainerCreateBody {
        ContainerCreateBody {
            image: Some(self.base.id.clone()),
            ..ContainerCreateBody::default()
        }
    }

    /// Adds everything, and keeps the result as an image.
    async fn make(&self, engine: &Engine, container: &str) -> Result<()> {
        if self.exists(engine).await? {
            return Ok(());
        }
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        let upload = engine.docker.upload_to_container(
            container,
            Some(options),
            bollard::body_full(archive(self.denied.as_ref()).into()),
        );
        engine.ask("put the guest into the image", upload).await?;
        // As instructions: Podman does not read the config of a commit.
        let labels = [
            (LABEL, digest()),
            (WHOLE, &self.whole),
            (BASE, &self.base.id),
            // An image has no owner process.
            (crate::owner::LABEL, "\"\""),
        ]
        .map(|(name, value)| format!("LABEL {name}={value}"))
        .join("\n");
        let options = CommitContainerOptionsBuilder::new()
            .container(container)
            .repo(REPOSITORY)
            .tag(&self.tag)
            .pause(false)
            .changes(&labels)
            .build();
        let commit = engine
            .docker
            .commit_container(options, ContainerConfig::default());
        engine.ask("keep the prepared image", commit).await?;
        Ok(())
    }
}
