//! The isolation technologies this binary was built with.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::Backend;

use crate::failure::Failure;

/// Names that mean something, whether built in or not.
const KNOWN: [&str; 4] = ["native", "docker", "microvm", "aca"];

const BUILT_IN: &str = if cfg!(feature = "docker") {
    "native, docker"
} else {
    "native"
};

/// Those that need no service to be asked.
pub fn all() -> Vec<Arc<dyn Backend>> {
    vec![native()]
}

pub fn native() -> Arc<dyn Backend> {
    Arc::new(NativeBackend::new())
}

pub async fn choose(name: &str) -> Result<Arc<dyn Backend>, Failure> {
    match name {
        "native" => return Ok(native()),
        #[cfg(feature = "docker")]
        "docker" => return Ok(Arc::new(docker().await?)),
        _ => {}
    }
    let failure = if KNOWN.contains(&name) {
        Failure::new(
            "backend.unavailable",
            format!("the {name} backend is not part of this build of brig"),
        )
    } else {
        Failure::new("backend.unknown", format!("no backend is called `{name}`"))
    };
    Err(failure.with_hint(format!("this build has: {BUILT_IN}")))
}

/// The engine that the environment names. Whoever waits for an image is told what comes.
#[cfg(feature = "docker")]
pub async fn docker() -> Result<brig_docker::DockerBackend, Failure> {
    let options = brig_docker::Options {
        progress: Some(brig_docker::Progress::new(crate::failure::note)),
        ..brig_docker::Options::default()
    };
    Ok(brig_docker::DockerBackend::connect(options).await?)
}
