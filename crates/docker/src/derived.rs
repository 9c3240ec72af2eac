//! An image with the guest in it, made once from each image that is used. Nothing of the host is
//! mounted for it, so it works with any image and any engine.

use std::collections::HashMap;
use std::sync::OnceLock;

use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use brig_sandbox::Result;
use brig_wire::Denied;
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
/// The digest of all of it, stand-ins for denied programs among it.
const WHOLE: &str = "brig.whole";
const REPOSITORY: &str = "brig-derived";

/// Raised with every change of how things lie in the archive.
const LAYOUT: u8 = 1;

/// Where the stand-in for denied programs is, and the folder that has it under their names.
const SHIM: &str = ".brig/shim";
pub const NAMES: &str = "/.brig/names";

/// The digest that derived images of this build carry: of what is added to every image.
pub fn digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let programs = [brig_guest_image::GUEST, brig_guest_image::SHIM];
        let mut hash = Sha256::new();
        hash.update([LAYOUT]);
        for program in programs {
            hash.update(Sha256::digest(program));
        }
        hex(&hash.finalize())
    })
}

/// Of that, and of where the stand-ins are.
fn whole(denied: Option<&Denied>) -> String {
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

fn stand_ins(denied: &Denied) -> impl Iterator<Item = String> {
    let names = denied.names.iter().map(|name| format!("{NAMES}/{name}"));
    names.chain(denied.covered.iter().cloned())
}

/// All that is added.
fn archive(denied: Option<&Denied>) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.folder(".brig", 0o555);
    archive.file(".brig/guest", 0o555, brig_guest_image::GUEST);
    if let Some(denied) = denied {
        archive.file(SHIM, 0o555, brig_guest_image::SHIM);
        archive.folder(NAMES.trim_start_matches('/'), 0o555);
        for path in stand_ins(denied) {
            archive.link(path.trim_start_matches('/'), SHIM);
        }
    }
    archive.finish()
}

/// The name of the image derived from this one; made if it is not there yet.
pub async fn ensure(
    engine: &Engine,
    base: &Image,
    denied: Option<&Denied>,
    leftovers: &Leftovers,
) -> Result<String> {
    let whole = whole(denied);
    let key = hex(&Sha256::digest(format!("{}\n{whole}", base.id)));
    let name = format!("{REPOSITORY}:{}", &key[..32]);
    let found = engine
        .find("look at an image", engine.docker.inspect_image(&name))
        .await?;
    let labels = found
        .and_then(|found| found.config)
        .and_then(|config| config.labels);
    // Anyone can give an image that name.
    if labels.is_some_and(|labels| {
        labels.get(WHOLE) == Some(&whole) && labels.get(BASE) == Some(&base.id)
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
        bollard::body_full(archive(denied).into()),
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
            (LABEL.to_owned(), digest().to_owned()),
            (WHOLE.to_owned(), whole),
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
