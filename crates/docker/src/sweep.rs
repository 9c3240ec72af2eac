//! Removes what dead owners have left in the engine.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State};
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};
use brig_sandbox::Result;

use crate::apparmor::{self, Kernel};
use crate::derived;
use crate::engine::Engine;
use crate::owner::{ContainerOwner, LABEL, OwnerState};

/// Images of other builds of Brig are kept for a while, because several builds may be in use.
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

async fn list(engine: &Engine) -> Result<Vec<ContainerSummary>> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([(
            "label".to_owned(),
            vec![LABEL.to_owned()],
        )])),
        ..ListContainersOptions::default()
    };
    let all = engine.docker.list_containers(Some(options));
    engine.ask("list containers", all).await
}

pub(crate) async fn containers(engine: &Engine) -> Result<usize> {
    let all = list(engine).await?;
    let own = ContainerOwner::of_process();
    let mut removed = 0;
    for container in all {
        let owner = container
            .labels
            .as_ref()
            .and_then(ContainerOwner::from_labels);
        let (Some(id), Some(owner)) = (container.id, owner) else {
            continue;
        };
        let ended = matches!(container.state, Some(State::EXITED | State::DEAD));
        if is_orphan(owner.state(&own), engine.is_local(), ended) && engine.remove(&id).await? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Cloned machines have the same id, and may share a remote engine. There only an exited container is
/// certain to have no owner.
fn is_orphan(fate: OwnerState, local: bool, ended: bool) -> bool {
    match fate {
        OwnerState::Dead => true,
        OwnerState::EarlierBoot => local || ended,
        OwnerState::Alive | OwnerState::Unknown => false,
    }
}

/// AppArmor profiles that no container uses.
pub(crate) async fn profiles(engine: &Engine, kernel: &Kernel) -> Result<()> {
    let all = list(engine).await?;
    let is_used = |name: &str| {
        let mut labels = all.iter().filter_map(|one| one.labels.as_ref());
        labels.any(|labels| labels.get(apparmor::LABEL).is_some_and(|used| used == name))
    };
    kernel.sweep(is_used).await.map(drop)
}

/// Derived images of other builds of Brig. One in use is kept.
pub(crate) async fn images(engine: &Engine) -> Result<()> {
    let filters = HashMap::from([("label", vec![derived::LABEL])]);
    let options = ListImagesOptionsBuilder::new().filters(&filters).build();
    let all = engine
        .ask("list images", engine.docker.list_images(Some(options)))
        .await?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    for image in all {
        let age = now.saturating_sub(u64::try_from(image.created).unwrap_or_default());
        let current =
            image.labels.get(derived::LABEL).map(String::as_str) == Some(derived::digest());
        let untagged = image.repo_tags.iter().all(|tag| tag.starts_with("<none>"));
        if untagged || (!current && age > KEEP.as_secs()) {
            let options = RemoveImageOptionsBuilder::new().build();
            // The engine refuses to remove an image in use.
            let _ = engine
                .ask(
                    "remove an image",
                    engine.docker.remove_image(&image.id, Some(options), None),
                )
                .await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_living_or_unknown_owner_is_removed() {
        for (local, ended) in [(true, true), (true, false), (false, true), (false, false)] {
            assert!(!is_orphan(OwnerState::Alive, local, ended));
            assert!(!is_orphan(OwnerState::Unknown, local, ended));
            assert!(is_orphan(OwnerState::Dead, local, ended));
            assert_eq!(
                is_orphan(OwnerState::EarlierBoot, local, ended),
                local || ended
            );
        }
    }
}
