//! An image with the guest in it, made once from each image that is used. Nothing of the host is
//! mounted for it, so it works with any image and any engine.

use std::collections::HashMap;
use std::sync::OnceLock;

use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use brig_sandbox::Result;
use sha2::{Digest, Sha256};

use crate::address::hex;
use crate::archive::Archive;
use crate::engine::Engine;
use crate::image::Image;
use crate::leftovers::Leftovers;
use crate::owner::Owner;

/// Where the guest is inside.
pub const GUEST: &str = "/.brig/guest";

/// On derived images: the digest of what was added.
pub const LABEL: &str = "brig.derived";
const BASE: &str = "brig.base";
const REPOSITORY: &str = "brig-derived";

/// What is added, and its digest.
fn addition() -> &'static (Vec<u8>, String) {
    static ADDITION: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    ADDITION.get_or_init(|| {
        let mut archive = Archive::default();
        archive.folder(".brig", 0o555);
        archive.file(".brig/guest", 0o555, brig_guest_image::GUEST);
        let bytes = archive.finish();
        let digest = hex(&Sha256::digest(&bytes));
        (bytes, digest)
    })
}

/// The digest that derived images of this build carry.
pub fn digest() -> &'static str {
    &addition().1
}

/// The name of the image derived from this one; made if it is not there yet.
pub async fn ensure(engine: &Engine, base: &Image, leftovers: &Leftovers) -> Result<String> {
    let (archive, digest) = addition();
    let key = hex(&Sha256::digest(format!("{}\n{digest}", base.id)));
    let name = format!("{REPOSITORY}:{}", &key[..32]);
    let found = engine
        .find("look at an image", engine.docker.inspect_image(&name))
        .await?;
    let labels = found
        .and_then(|found| found.config)
        .and_then(|config| config.labels);
    // Anyone can give an image that name.
    if labels.is_some_and(|labels| {
        labels.get(LABEL) == Some(digest) && labels.get(BASE) == Some(&base.id)
    }) {
        return Ok(name);
    }

    let staging = leftovers.name();
    let body = ContainerCreateBody {
        image: Some(base.id.clone()),
        // Never run; an image may have no command of its own.
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(Vec::new()),
        labels: Some(Owner::of_process().labels()),
        network_disabled: Some(true),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new()
        .name(staging.as_str())
        .build();
    engine
        .ask(
            "prepare the image",
            engine.docker.create_container(Some(options), body),
        )
        .await?;
    let options = UploadToContainerOptionsBuilder::new().path("/").build();
    let upload = engine.docker.upload_to_container(
        staging.as_str(),
        Some(options),
        bollard::body_full(archive.clone().into()),
    );
    engine.ask("put the guest into the image", upload).await?;
    let options = CommitContainerOptionsBuilder::new()
        .container(staging.as_str())
        .repo(REPOSITORY)
        .tag(&key[..32])
        .pause(false)
        .build();
    let config = ContainerConfig {
        labels: Some(HashMap::from([
            (LABEL.to_owned(), digest.clone()),
            (BASE.to_owned(), base.id.clone()),
            // It is not a container, and belongs to nobody in particular.
            (crate::owner::LABEL.to_owned(), String::new()),
        ])),
        ..ContainerConfig::default()
    };
    engine
        .ask(
            "keep the prepared image",
            engine.docker.commit_container(options, config),
        )
        .await?;
    staging.remove().await?;
    Ok(name)
}
