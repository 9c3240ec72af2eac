//! The contract that every backend keeps. `BRIG_CASE=name` tries only the cases of that name.

use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::conformance::{Fixture, Verdict, cases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("folder");
    let fixture = Fixture::new(Arc::new(NativeBackend::new()), folder.path());
    let wanted = std::env::var("BRIG_CASE").unwrap_or_default();
    let mut failed = 0;
    let mut skipped = 0;
    for case in cases()
        .into_iter()
        .filter(|case| case.name.contains(&wanted))
    {
        match case.run(&fixture).await {
            Verdict::Passed => println!("passed  {}", case.name),
            Verdict::Skipped(why) => {
                skipped += 1;
                brig_testing::skip(&format!("conformance {}", case.name), &why);
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("FAILED  {}: {why}", case.name);
            }
        }
    }
    println!("{failed} failed, {skipped} skipped");
    assert_eq!(failed, 0, "see above");
}
