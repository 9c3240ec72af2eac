//! The ground of the docker backend, on the engine that `scripts/test` started.

use std::sync::Arc;

use brig_attacks::Ground;
use brig_docker::{Address, DockerBackend, Options};

pub fn ground(runtime: &str) -> Option<Ground> {
    if !brig_attacks::host::is_root() {
        brig_attacks::host::skip("a container is the same whoever asks for it; root attacks it");
        return None;
    }
    let (Ok(socket), Ok(image)) = (
        std::env::var("BRIG_TEST_DOCKER"),
        std::env::var("BRIG_TEST_IMAGE"),
    ) else {
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
    let mut ground = Ground::new(Arc::new(backend), env!("CARGO_BIN_EXE_owner"));
    let words = [socket, image, runtime.to_owned()];
    ground.owner.extend(words.map(Into::into));
    // The guest is in the same namespace.
    ground.own_processes += 1;
    Some(ground)
}
