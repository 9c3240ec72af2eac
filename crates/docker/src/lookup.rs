//! `/etc/hosts` and `/etc/resolv.conf` of all containers. An engine makes them only together with a network,
//! which takes longer than all the rest of a start, and it covers those of an image with empty files. So they
//! are in a volume of the engine, whose files are mounted read-only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, Volume,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, ListVolumesOptionsBuilder, RemoveVolumeOptions,
    UploadToContainerOptionsBuilder,
};
use brig_layers::hex;
use brig_reason::ReasonCode;
use brig_sandbox::{Error, Plan, Result};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::archive::Archive;
use crate::engine::{Engine, Facts};
use crate::staging::{Preparation, Staging};

/// What an engine writes for a container without a network.
const HOSTS: &str = "127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
ff00::0\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
";
/// The guest listens there.
const RESOLV: &str = "nameserver 127.0.0.1\n";

/// The last file of the volume: with it, the others are complete.
const COMPLETE: &str = "complete";

/// In the volume, where they are mounted, and what is in them. In the order in which they are written.
const FILES: [(&str, &str, &str); 3] = [
    ("hosts", "/etc/hosts", HOSTS),
    ("resolv.conf", "/etc/resolv.conf", RESOLV),
    (COMPLETE, "/.brig/lookup", ""),
];

/// On the volume: the digest of what is in it.
pub(crate) const LABEL: &str = "brig.lookup";

/// Where the volume is while it is filled.
const STAGED: &str = "/.brig-lookup";

/// How long another process that fills it is waited for.
const OTHERS: Duration = Duration::from_secs(150);

fn digest() -> String {
    let mut hash = Sha256::new();
    for (name, place, content) in FILES {
        hash.update(format!("{name}\n{place}\n{}\n{content}", content.len()));
    }
    hex(&hash.finalize())[..32].to_owned()
}

fn name() -> String {
    format!("brig-lookup-{}", digest())
}

/// Where the files are on the engine's machine.
#[derive(Debug, Default)]
pub(crate) struct LookupFiles(Mutex<VolumeState>);

#[derive(Clone, Debug, Default)]
enum VolumeState {
    #[default]
    Unknown,
    Directory(String),
    /// The engine has no such volumes.
    Unusable,
}

impl LookupFiles {
    /// Their directory. `None` if the engine has to make them itself. `image`: any that the engine has.
    pub(crate) async fn directory(
        &self,
        engine: &Engine,
        facts: &Facts,
        image: &str,
    ) -> Result<Option<String>> {
        let mut state = self.0.lock().await;
        if let VolumeState::Unknown = *state {
            // SELinux would keep the container from reading files that are not labelled for it. Other engines
            // have files of this machine.
            let unusable = facts.has("selinux") || facts.product.differences().needs_files;
            *state = match unusable {
                true => VolumeState::Unusable,
                false => unless_failed(found_or_made(engine, image).await)?,
            };
        }
        Ok(match &*state {
            VolumeState::Directory(path) => Some(path.clone()),
            VolumeState::Unknown | VolumeState::Unusable => None,
        })
    }

    /// Makes them again.
    pub(crate) async fn repair(&self, engine: &Engine, image: &str) -> Result<()> {
        let mut state = self.0.lock().await;
        *state = unless_failed(made(engine, image).await)?;
        Ok(())
    }

    /// From now on the engine makes them.
    pub(crate) async fn give_up(&self) {
        *self.0.lock().await = VolumeState::Unusable;
    }
}

/// Whether an error is about these files, which may be missing, or which the engine may refuse to mount.
pub(crate) fn concerns(body: &ContainerCreateBody, error: &Error) -> bool {
    let Error::Engine { problem, .. } = error else {
        return false;
    };
    let mounts = body
        .host_config
        .as_ref()
        .and_then(|host| host.mounts.as_ref());
    let mut mounts = mounts.into_iter().flatten().filter(|mount| is_ours(mount));
    mounts.any(|mount| {
        mount
            .source
            .as_ref()
            .is_some_and(|source| problem.contains(source))
    })
}

/// The same container, with files that the engine makes.
pub(crate) fn without(body: &ContainerCreateBody) -> ContainerCreateBody {
    let mut body = body.clone();
    body.network_disabled = None;
    if let Some(host) = &mut body.host_config
        && let Some(mounts) = &mut host.mounts
    {
        mounts.retain(|mount| !is_ours(mount));
    }
    body
}

fn is_ours(mount: &Mount) -> bool {
    let source = mount.source.as_deref().unwrap_or_default();
    source.contains(&format!("/{}/", name()))
}

/// The mounts of the files in this directory. The engine chooses the propagation: in its own directories only some
/// are possible.
pub(crate) fn mounts(directory: &str, plan: &Plan) -> Vec<Mount> {
    let files = FILES.iter().filter(|(_, target, _)| {
        let mut mounts = plan.mounts().iter();
        !mounts.any(|mount| mount.target == std::path::Path::new(target))
    });
    files
        .map(|(name, target, _)| Mount {
            typ: Some(MountType::BIND),
            source: Some(format!("{directory}/{name}")),
            target: Some((*target).to_owned()),
            read_only: Some(true),
            ..Mount::default()
        })
        .collect()
}

/// An engine that refuses volumes can do without, only slower.
fn unless_failed(state: Result<VolumeState>) -> Result<VolumeState> {
    match state {
        Err(Error::Engine {
            code: ReasonCode::EngineFailed,
            ..
        }) => Ok(VolumeState::Unusable),
        state => state,
    }
}

/// Whether its files are in it is known when they are mounted.
async fn found_or_made(engine: &Engine, image: &str) -> Result<VolumeState> {
    let name = name();
    let inspect = engine.docker.inspect_volume(&name);
    match engine.find("inspect a volume", inspect).await? {
        Some(volume) => Ok(state_of(volume)),
        None => made(engine, image).await,
    }
}

/// Anyone can give a volume that name, so it is checked.
fn state_of(volume: Volume) -> VolumeState {
    let ours = volume.labels.get(LABEL) == Some(&digest())
        && volume.driver == "local"
        && volume.options.is_empty()
        && volume.mountpoint.starts_with('/')
        && volume.mountpoint.contains(&format!("/{}/", name()));
    match ours {
        true => VolumeState::Directory(volume.mountpoint),
        false => VolumeState::Unusable,
    }
}

fn labels() -> HashMap<String, String> {
    HashMap::from([
        (LABEL.to_owned(), digest()),
        // A volume has no owner process.
        (crate::owner::LABEL.to_owned(), String::new()),
    ])
}

/// Creates the volume, if it is missing, and fills it.
async fn made(engine: &Engine, image: &str) -> Result<VolumeState> {
    let request = VolumeCreateRequest {
        name: Some(name()),
        driver: Some("local".into()),
        labels: Some(labels()),
        ..VolumeCreateRequest::default()
    };
    let create = engine.docker.create_volume(request);
    let state = state_of(engine.ask("create a volume", create).await?);
    if let VolumeState::Directory(_) = &state {
        fill(engine, image).await?;
    }
    Ok(state)
}

async fn fill(engine: &Engine, image: &str) -> Result<()> {
    let staging = Staging::new(engine, &name());
    let files = Arc::new(Files(image.to_owned()));
    let begun = Instant::now();
    while !staging.prepare(files.clone()).await? {
        if begun.elapsed() > OTHERS {
            return Err(Error::Engine {
                code: ReasonCode::EngineTimeout,
                step: "prepare files for containers".into(),
                problem: "another process does not finish it".into(),
                hint: None,
            });
        }
        staging.wait(begun.elapsed()).await?;
    }
    Ok(())
}

/// The files, to be written with the help of this image.
struct Files(String);

#[async_trait]
impl Preparation for Files {
    fn body(&self) -> ContainerCreateBody {
        let volume = Mount {
            typ: Some(MountType::VOLUME),
            source: Some(name()),
            target: Some(STAGED.into()),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                // If somebody has just removed it, the engine makes it again for the container.
                labels: Some(labels()),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        };
        ContainerCreateBody {
            image: Some(self.0.clone()),
            host_config: Some(HostConfig {
                mounts: Some(vec![volume]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }

    async fn make(&self, engine: &Engine, container: &str) -> Result<()> {
        let path = format!("{STAGED}/{COMPLETE}");
        let options = DownloadFromContainerOptionsBuilder::new()
            .path(&path)
            .build();
        let mut answer = engine
            .docker
            .download_from_container(container, Some(options))
            .boxed();
        let first = async { answer.next().await.transpose() };
        // Containers may be using them: they are not written a second time.
        if let Some(Some(_)) = engine.find("look for files", first).await? {
            return Ok(());
        }
        let mut archive = Archive::default();
        for (name, _, content) in FILES {
            archive.file(name, 0o444, content.as_bytes());
        }
        let options = UploadToContainerOptionsBuilder::new().path(STAGED).build();
        let bytes = bollard::body_full(archive.finish().into());
        let upload = engine
            .docker
            .upload_to_container(container, Some(options), bytes);
        engine.ask("prepare files for containers", upload).await
    }
}

/// Removes the volumes of other builds of Brig. Containers keep the files that they have mounted, and a build
/// that misses its own volume makes it again.
pub(crate) async fn sweep(engine: &Engine) -> Result<()> {
    let filters = HashMap::from([("label", vec![LABEL])]);
    let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
    let list = engine.docker.list_volumes(Some(options));
    let all = engine.ask("list volumes", list).await?;
    for volume in all.volumes.unwrap_or_default() {
        if volume.labels.get(LABEL) != Some(&digest()) {
            let remove = engine
                .docker
                .remove_volume(&volume.name, None::<RemoveVolumeOptions>);
            let _ = engine.ask("remove a volume", remove).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_volume_of_ours_is_used() {
        let ours = Volume {
            driver: "local".into(),
            mountpoint: format!("/volumes/{}/_data", name()),
            labels: HashMap::from([(LABEL.to_owned(), digest())]),
            ..Volume::default()
        };
        assert!(matches!(state_of(ours.clone()), VolumeState::Directory(_)));
        let elsewhere = HashMap::from([("device".to_owned(), "/".to_owned())]);
        for other in [
            Volume {
                driver: "nfs".into(),
                ..ours.clone()
            },
            Volume {
                labels: HashMap::new(),
                ..ours.clone()
            },
            Volume {
                options: elsewhere,
                ..ours.clone()
            },
            Volume {
                mountpoint: String::new(),
                ..ours
            },
        ] {
            assert!(matches!(state_of(other), VolumeState::Unusable));
        }
    }

    #[test]
    fn a_volume_that_the_engine_makes_for_a_container_is_ours_too() {
        let host = Files("image".into()).body().host_config.expect("mounts");
        let mount = host.mounts.expect("mounts").remove(0);
        let options = mount.volume_options.expect("options");
        let volume = Volume {
            driver: "local".into(),
            mountpoint: format!("/volumes/{}/_data", name()),
            labels: options.labels.expect("labels"),
            ..Volume::default()
        };
        assert!(matches!(state_of(volume), VolumeState::Directory(_)));
    }

    #[test]
    fn an_engine_that_refuses_them_gets_a_body_without() {
        let source = format!("/volumes/{}/_data/hosts", name());
        let mount = |source: &str| Mount {
            source: Some(source.into()),
            ..Mount::default()
        };
        let body = ContainerCreateBody {
            network_disabled: Some(true),
            host_config: Some(HostConfig {
                mounts: Some(vec![mount("/home/me"), mount(&source)]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let error = |problem: &str| Error::Engine {
            code: ReasonCode::EngineFailed,
            step: "create a container".into(),
            problem: problem.into(),
            hint: None,
        };
        assert!(concerns(&body, &error(&format!("{source} does not exist"))));
        assert!(!concerns(&body, &error("/home/me does not exist")));
        let without = without(&body);
        assert_eq!(without.network_disabled, None);
        let mounts = without.host_config.and_then(|host| host.mounts);
        assert_eq!(mounts, Some(vec![mount("/home/me")]));
    }
}
