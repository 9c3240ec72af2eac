//! The contract that every backend keeps. `BRIG_CASE=name` tries only the cases of that name.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::Backend;
use brig_sandbox::conformance::{Fixture, Verdict, cases};

async fn try_out(how: &str, backend: NativeBackend, groups: &[&str]) {
    let folder = tempfile::tempdir().expect("folder");
    let fixture = Fixture::new(Arc::new(backend), folder.path());
    let wanted = std::env::var("BRIG_CASE").unwrap_or_default();
    let mut failed = 0;
    let mut skipped = 0;
    for case in cases()
        .into_iter()
        .filter(|case| groups.iter().any(|group| case.name.starts_with(group)))
        .filter(|case| case.name.contains(&wanted))
    {
        match case.run(&fixture).await {
            Verdict::Passed => println!("passed  {how} {}", case.name),
            Verdict::Skipped(why) => {
                skipped += 1;
                brig_testing::skip(&format!("conformance {how} {}", case.name), &why);
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("FAILED  {how} {}: {why}", case.name);
            }
        }
    }
    println!("{how}: {failed} failed, {skipped} skipped");
    assert_eq!(failed, 0, "see above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_keeps_the_contract() {
    try_out("native", NativeBackend::new(), &[""]).await;
}

/// What older kernels do, on any kernel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_keeps_it_with_copied_layers() {
    if NativeBackend::new().copies_layers() {
        // Then it was tried with all cases.
        return;
    }
    let groups = ["files::", "sessions::", "durable::", "checkpoints::"];
    let backend = NativeBackend::with_copied_layers();
    assert!(backend.copies_layers(), "control");
    try_out("copying", backend, &groups).await;
}
