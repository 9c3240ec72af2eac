//! The backends of this build. A kind of backend is added by an entry in [`KINDS`].

use std::pin::Pin;
use std::sync::Arc;

use brig_config::{Disk, UserConfig};
use brig_native::NativeBackend;
use brig_reason::ReasonCode;
use brig_sandbox::backend::{BackendKind, Options};
use brig_sandbox::{Backend, BackendId};

use crate::failure::Failure;
use crate::user;

type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, Failure>>>>;

/// One kind of backend.
pub(crate) struct BackendEntry {
    pub kind: &'static BackendKind,
    /// Opens the one that the user configured, or the usual one, for which there are no settings.
    open: fn(BackendId, Options) -> Opening,
}

pub(crate) static KINDS: &[BackendEntry] = &[
    BackendEntry {
        kind: &brig_native::KIND,
        open: |id, settings| Box::pin(async move { open_native(&id, &settings) }),
    },
    #[cfg(feature = "docker")]
    BackendEntry {
        kind: &brig_docker::KIND,
        open: |id, settings| Box::pin(open_docker(id, settings)),
    },
    #[cfg(feature = "azure")]
    BackendEntry {
        kind: &brig_aca::KIND,
        open: |id, settings| Box::pin(async move { open_azure(id, &settings) }),
    },
];

/// The name of the backend that is used unless another one is chosen.
pub(crate) const DEFAULT: &str = "native";

pub(crate) fn native() -> Arc<dyn Backend> {
    Arc::new(NativeBackend::new())
}

fn open_native(id: &BackendId, settings: &Options) -> Result<Arc<dyn Backend>, Failure> {
    if id.instance().is_some() {
        let problem = "there is one native backend on a machine, and it has no settings";
        return Err(Failure::new(ReasonCode::ConfigInvalid, problem));
    }
    brig_native::KIND.check_settings(id, settings)?;
    Ok(native())
}

/// Waiting for an image to be pulled is shown.
#[cfg(feature = "docker")]
async fn open_docker(id: BackendId, settings: Options) -> Result<Arc<dyn Backend>, Failure> {
    let options = brig_docker::Options {
        progress: Some(brig_docker::Progress::new(crate::failure::note)),
        ..brig_docker::Options::configured(id, &settings)?
    };
    Ok(Arc::new(
        brig_docker::DockerBackend::connect(options).await?,
    ))
}

#[cfg(feature = "azure")]
fn open_azure(id: BackendId, settings: &Options) -> Result<Arc<dyn Backend>, Failure> {
    let options = brig_aca::Options::configured(id, settings)?;
    Ok(Arc::new(brig_aca::AcaBackend::new(options)))
}

/// The backend of that name: `KIND`, or `KIND:NAME` of the user's configuration.
pub(crate) async fn choose(name: &str) -> Result<Arc<dyn Backend>, Failure> {
    let id: BackendId = (name.parse())
        .map_err(|_| unknown(&format!("unknown backend `{}`", name.escape_debug())))?;
    let settings = match id.instance() {
        None => Options::new(),
        Some(instance) => {
            let (user, _) = user::store()?.load(&Disk).map_err(user::failed)?;
            settings(&id, instance, &user)?
        }
    };
    open(id, settings).await
}

async fn open(id: BackendId, settings: Options) -> Result<Arc<dyn Backend>, Failure> {
    let entry = KINDS.iter().find(|entry| entry.kind.name == id.kind());
    let entry = entry.ok_or_else(|| unknown(&format!("unknown backend `{}`", id.kind())))?;
    (entry.open)(id, settings).await
}

/// The kind of a backend of that name, if this build has it.
pub(crate) fn kind(name: &str) -> Option<&'static BackendKind> {
    let id: BackendId = name.parse().ok()?;
    let entry = KINDS.iter().find(|entry| entry.kind.name == id.kind())?;
    Some(entry.kind)
}

fn unknown(problem: &str) -> Failure {
    let kinds: Vec<&str> = KINDS.iter().map(|entry| entry.kind.name).collect();
    Failure::new(ReasonCode::BackendUnknown, problem)
        .with_hint(format!("this build has: {}", kinds.join(", ")))
}

fn settings(id: &BackendId, instance: &str, user: &UserConfig) -> Result<Options, Failure> {
    let found = user.backends().get(instance);
    match found.filter(|backend| backend.kind == id.kind()) {
        Some(backend) => Ok(backend.options.clone()),
        None => Err(Failure::new(
            ReasonCode::BackendUnknown,
            format!("no backend `{id}` in the configuration"),
        )
        .with_hint(format!(
            "add it to config.yaml: backends: {{{instance}: {{kind: {}, options: {{…}}}}}}",
            id.kind()
        ))),
    }
}

/// All backends: the usual one of each kind, and those of the user's configuration.
pub(crate) async fn all() -> Vec<(BackendId, Result<Arc<dyn Backend>, Failure>)> {
    let mut ids: Vec<(BackendId, Options)> = (KINDS.iter())
        .map(|entry| (BackendId::of(entry.kind.name), Options::new()))
        .collect();
    // What is wrong with the configuration is shown where it is used.
    let user = user::store().and_then(|store| store.load(&Disk).map_err(user::failed));
    if let Ok((user, _)) = user {
        let configured = user.backends().iter().filter_map(|(name, backend)| {
            let id = format!("{}:{name}", backend.kind).parse().ok()?;
            Some((id, backend.options.clone()))
        });
        ids.extend(configured);
    }
    let mut all = Vec::new();
    for (id, settings) in ids {
        let opened = open(id.clone(), settings).await;
        all.push((id, opened));
    }
    all
}
