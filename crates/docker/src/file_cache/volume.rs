//! The volume of a cache. The engine fills it, with the help of a container that is never started.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest,
};
use bollard::query_parameters::{
    ListVolumesOptionsBuilder, RemoveVolumeOptions, UploadToContainerOptionsBuilder,
};
use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;

use super::note::{self, Note};
use crate::archive;
use crate::engine::Engine;
use crate::owner::{self, ContainerOwner};
use crate::staging::{Preparation, Staging};

/// Where the volume is, in containers that use it and in the one that it is filled with.
pub(super) const TARGET: &str = "/.brig/cache";

/// On the volume: the directory of its session.
const LABEL: &str = "brig.cache";

/// How much is sent in one request, which may take only so long. A larger file is alone in its request.
const BATCH: u64 = 64 * 1024 * 1024;

const PIECE: usize = 256 * 1024;
/// Pieces that may wait to be sent.
const QUEUE: usize = 8;

/// A file to be written.
#[derive(Clone, Debug)]
pub(super) struct Addition {
    number: u64,
    size: u64,
    /// Without, it is empty.
    content: Option<PathBuf>,
}

impl Addition {
    pub(super) fn copy(number: u64, size: u64, content: PathBuf) -> Self {
        Self {
            number,
            size,
            content: Some(content),
        }
    }

    /// In place of one that the session no longer has.
    pub(super) fn empty(number: u64) -> Self {
        Self {
            number,
            size: 0,
            content: None,
        }
    }
}

/// The mount in a container that uses it.
pub(crate) fn mount(volume: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.to_owned()),
        target: Some(TARGET.into()),
        read_only: Some(read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

fn labels(session: &Path) -> HashMap<String, String> {
    let mut labels = ContainerOwner::of_process().machine_label();
    labels.insert(LABEL.to_owned(), session.to_string_lossy().into_owned());
    // A volume has no owner process.
    labels.insert(owner::LABEL.to_owned(), String::new());
    labels
}

/// Whether the engine has it, as it was created.
pub(super) async fn exists(engine: &Engine, volume: &str, session: &Path) -> Result<bool> {
    let inspect = engine.docker.inspect_volume(volume);
    let found = engine.find("inspect a volume", inspect).await?;
    Ok(found.is_some_and(|found| {
        found.driver == "local" && found.options.is_empty() && found.labels == labels(session)
    }))
}

pub(super) async fn create(engine: &Engine, volume: &str, session: &Path) -> Result<()> {
    let request = VolumeCreateRequest {
        name: Some(volume.to_owned()),
        driver: Some("local".into()),
        labels: Some(labels(session)),
        ..VolumeCreateRequest::default()
    };
    let create = engine.docker.create_volume(request);
    engine.ask("create a volume", create).await.map(drop)
}

pub(super) async fn remove(engine: &Engine, volume: &str) -> Result<()> {
    let remove = engine
        .docker
        .remove_volume(volume, None::<RemoveVolumeOptions>);
    engine.find("remove a volume", remove).await.map(drop)
}

/// Writes files to it.
pub(super) async fn add(
    engine: &Engine,
    volume: &str,
    image: &str,
    files: Vec<Addition>,
) -> Result<()> {
    let what = Arc::new(Additions {
        volume: volume.to_owned(),
        image: image.to_owned(),
        batches: batches(files),
    });
    match Staging::new(engine, volume).prepare(what).await? {
        true => Ok(()),
        false => Err(Error::Engine {
            code: ReasonCode::EngineFailed,
            step: "fill a volume".into(),
            problem: "another process does that".into(),
            hint: None,
        }),
    }
}

fn batches(files: Vec<Addition>) -> Vec<Vec<Addition>> {
    let mut batches: Vec<Vec<Addition>> = Vec::new();
    let mut room = 0;
    for file in files {
        match batches.last_mut() {
            Some(last) if file.size <= room => {
                room -= file.size;
                last.push(file);
            }
            _ => {
                room = BATCH.saturating_sub(file.size);
                batches.push(vec![file]);
            }
        }
    }
    batches
}

struct Additions {
    volume: String,
    image: String,
    batches: Vec<Vec<Addition>>,
}

#[async_trait]
impl Preparation for Additions {
    fn body(&self) -> ContainerCreateBody {
        ContainerCreateBody {
            image: Some(self.image.clone()),
            host_config: Some(HostConfig {
                mounts: Some(vec![mount(&self.volume, false)]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        }
    }

    async fn make(&self, engine: &Engine, container: &str) -> Result<()> {
        for batch in &self.batches {
            let options = UploadToContainerOptionsBuilder::new().path(TARGET).build();
            let (pieces, waiting) = mpsc::channel(QUEUE);
            let batch = batch.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = archive(&batch, &pieces) {
                    let _ = pieces.blocking_send(Err(error));
                }
            });
            let next = |mut waiting: mpsc::Receiver<_>| async move {
                waiting.recv().await.map(|piece| (piece, waiting))
            };
            let body = bollard::body_try_stream(stream::unfold(waiting, next));
            let upload = engine
                .docker
                .upload_to_container(container, Some(options), body);
            engine.ask("fill a volume", upload).await?;
        }
        Ok(())
    }
}

/// Readable for everybody: which user a container has depends on what else it mounts.
const MODE: u32 = 0o444;

/// Ends early if nobody takes it.
fn archive(files: &[Addition], pieces: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    let send = |bytes: Vec<u8>| pieces.blocking_send(Ok(bytes.into())).map_err(gone);
    for file in files {
        let size = usize::try_from(file.size).map_err(io::Error::other)?;
        send(archive::file_header(&file.number.to_string(), MODE, size))?;
        let Some(path) = &file.content else { continue };
        let mut from = File::open(path)?.take(file.size);
        let mut left = size;
        while left > 0 {
            let mut piece = vec![0; PIECE.min(left)];
            from.read_exact(&mut piece)?;
            left -= piece.len();
            send(piece)?;
        }
        send(archive::padding(size))?;
    }
    send(archive::end())
}

/// Removes the volumes of this machine's sessions that are gone, or have another one now. A session whose directory
/// can't be looked at is left alone. Removing one too many does no harm: it is made again.
pub(crate) async fn sweep(engine: &Engine) -> Result<()> {
    let own = ContainerOwner::of_process().machine_label();
    if own.values().any(String::is_empty) {
        return Ok(());
    }
    let filters = HashMap::from([("label", vec![LABEL])]);
    let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
    let list = engine.docker.list_volumes(Some(options));
    let all = engine.ask("list volumes", list).await?;
    for volume in all.volumes.unwrap_or_default() {
        let ours = own
            .iter()
            .all(|(name, value)| volume.labels.get(name) == Some(value));
        let session = volume.labels.get(LABEL).map(Path::new);
        if let (true, Some(session)) = (ours, session)
            && is_unused(&volume.name, session)
        {
            // One in use is refused, and removed the next time.
            let _ = remove(engine, &volume.name).await;
        }
    }
    Ok(())
}

fn is_unused(volume: &str, session: &Path) -> bool {
    match note::path(session).symlink_metadata() {
        Ok(_) => Note::read(session).is_some_and(|note| note.volume != volume),
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_unused_if_no_session_names_it() {
        let folder = tempfile::tempdir().expect("folder");
        let session = folder.path().join("session");
        assert!(is_unused("brig-cache-1", &session));
        std::fs::create_dir(&session).expect("folder");
        assert!(is_unused("brig-cache-1", &session));
        let note = Note::new();
        note.write(&session).expect("written");
        assert!(!is_unused(&note.volume, &session));
        assert!(is_unused(&Note::new().volume, &session));
        assert_eq!(Note::read(&session), Some(note));
        // What can't be read may name any.
        std::fs::write(note::path(&session), "{}").expect("write");
        assert!(!is_unused("brig-cache-1", &session));
    }

    #[test]
    fn a_request_is_no_larger_than_it_has_to_be() {
        let sizes = [BATCH * 3, BATCH / 2, BATCH / 2, 1, 0];
        let files = sizes.map(|size| Addition::copy(size, size, "x".into()));
        let counts: Vec<usize> = batches(files.into()).iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 2, 2]);
    }
}
