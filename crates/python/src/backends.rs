//! The backends of this build. A kind of backend is added by an entry in [`KINDS`].

use std::pin::Pin;
use std::sync::Arc;

use brig_docker::DockerBackend;
use brig_native::NativeBackend;
use brig_reason::ReasonCode;
use brig_sandbox::backend::{BackendKind, Options};
use brig_sandbox::{Backend, BackendId, Error, SessionConfig};
use pyo3::prelude::*;

use crate::config::Setup;

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, Error>> + Send + 'a>>;

/// A Python function that gives tokens, if there is one.
pub(crate) type Credential = Option<Arc<Py<PyAny>>>;

struct Entry {
    kind: &'static BackendKind,
    open: fn(BackendId, Options, Credential) -> Opening<'static>,
}

static KINDS: &[Entry] = &[
    Entry {
        kind: &brig_native::KIND,
        open: |_, _, _| Box::pin(async { Ok(Arc::new(NativeBackend::new()) as Arc<dyn Backend>) }),
    },
    Entry {
        kind: &brig_docker::KIND,
        open: |id, settings, _| Box::pin(open_docker(id, settings)),
    },
    #[cfg(feature = "azure")]
    Entry {
        kind: &brig_aca::KIND,
        open: |id, settings, credential| {
            Box::pin(async move { open_azure(id, &settings, credential) })
        },
    },
];

/// Their names.
#[pyfunction]
pub(crate) fn backends() -> Vec<&'static str> {
    KINDS.iter().map(|entry| entry.kind.name).collect()
}

async fn open_docker(id: BackendId, settings: Options) -> Result<Arc<dyn Backend>, Error> {
    let options = brig_docker::Options::configured(id, &settings)?;
    Ok(Arc::new(DockerBackend::connect(options).await?))
}

#[cfg(feature = "azure")]
fn open_azure(
    id: BackendId,
    settings: &Options,
    credential: Credential,
) -> Result<Arc<dyn Backend>, Error> {
    let mut options = brig_aca::Options::configured(id, settings)?;
    if let Some(function) = credential {
        options = options.with_tokens(Arc::new(crate::tokens::PythonTokens(function)));
    }
    Ok(Arc::new(brig_aca::AcaBackend::new(options)))
}

/// The one that was asked for. `auto` is `native` where it can be used, otherwise `docker`.
pub(crate) async fn choose(
    setup: &Setup,
    config: &SessionConfig,
    credential: &Credential,
) -> Result<Arc<dyn Backend>, Error> {
    let wanted = setup.backend.as_str();
    if wanted != "auto" {
        return open(wanted, setup, credential).await;
    }
    let docker = || open(brig_docker::KIND.name, setup, credential);
    // Options are those of containers.
    if !config.options.is_empty() {
        return docker().await;
    }
    let native = NativeBackend::new();
    match native.probe(config).await {
        Ok(_) => Ok(Arc::new(native)),
        Err(cause) => docker().await.map_err(|_| Error::Unavailable {
            backend: native.id().clone(),
            cause,
        }),
    }
}

/// One of [`backends`], with its settings.
pub(crate) async fn open(
    name: &str,
    setup: &Setup,
    credential: &Credential,
) -> Result<Arc<dyn Backend>, Error> {
    let entry = KINDS.iter().find(|entry| entry.kind.name == name);
    let entry = entry.ok_or_else(|| unknown(name))?;
    let settings = setup.settings.get(name).cloned().unwrap_or_default();
    (entry.open)(BackendId::of(entry.kind.name), settings, credential.clone()).await
}

fn unknown(name: &str) -> Error {
    Error::Engine {
        code: ReasonCode::BackendUnknown,
        step: "backend".into(),
        problem: format!("`{}` is unknown", name.escape_debug()),
        hint: Some(format!(
            "this build has: {}; `auto` chooses",
            backends().join(", ")
        )),
    }
}
