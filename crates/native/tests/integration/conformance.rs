//! The contract that every backend keeps.

mod native {
    use std::sync::Arc;

    use brig_conformance::Fixture;
    use brig_native::NativeBackend;

    async fn fixture() -> Option<Fixture> {
        Some(Fixture::new(Arc::new(NativeBackend::new())))
    }

    brig_conformance::contract!(fixture);
}

/// What older kernels do, on any kernel.
mod copying {
    use std::sync::Arc;

    use brig_conformance::Fixture;
    use brig_native::NativeBackend;
    use brig_sandbox::backend::StateKind;
    use brig_sandbox::{Backend, SessionConfig};

    async fn copies_layers(backend: &NativeBackend) -> bool {
        let offer = backend.probe(&SessionConfig::default()).await;
        offer.expect("it can be used").state == StateKind::Copied
    }

    async fn fixture() -> Option<Fixture> {
        if copies_layers(&NativeBackend::new()).await {
            // Then `native` has tried it with all cases.
            return None;
        }
        let backend = NativeBackend::with_copied_layers();
        assert!(copies_layers(&backend).await, "control");
        Some(Fixture::new(Arc::new(backend)))
    }

    brig_conformance::contract!(fixture: files sessions durable checkpoints);
}
