//! The target of the docker backend, on the engine that `scripts/test` started.

use std::sync::Arc;

use brig_attacks::AttackTarget;
use brig_docker::{Address, DockerBackend, Options};

pub(crate) fn target(runtime: &str) -> Option<AttackTarget> {
    target_of("BRIG_TEST_DOCKER", runtime)
}

/// On the engine that a variable names.
pub(crate) fn target_of(variable: &str, runtime: &str) -> Option<AttackTarget> {
    if !brig_attacks::host::is_root() {
        brig_attacks::host::skip("a container is the same whoever asks for it; root attacks it");
        return None;
    }
    let (Ok(socket), Ok(image)) = (std::env::var(variable), std::env::var("BRIG_TEST_IMAGE"))
    else {
        brig_attacks::host::skip("no engine was started for the tests (root only)");
        return None;
    };
    let options = Options {
        address: Some(Address::Unix(socket.clone().into())),
        image: Some(image.clone()),
        runtime: Some(runtime.into()),
        ..Options::default()
    };
    let connect = DockerBackend::connect(options);
    let connect = || tokio::runtime::Handle::current().block_on(connect);
    let backend = tokio::task::block_in_place(connect);
    let backend = backend.expect("the engine answers");
    let mut target = AttackTarget::new(Arc::new(backend), env!("CARGO_BIN_EXE_owner"));
    let words = [socket, image, runtime.to_owned()];
    target.owner.extend(words.map(Into::into));
    // The guest is in the same namespace.
    target.own_processes += 1;
    Some(target)
}
