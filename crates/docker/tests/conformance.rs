//! The contract that every backend keeps, on each runtime. `BRIG_CASE=name` tries only the cases of
//! that name.

mod common;

use brig_sandbox::conformance::{Fixture, Verdict, cases};
use common::Engine;

async fn try_out(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("conformance on {runtime}")) else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let fixture = Fixture::new(engine.backend().await, folder.path());
    let fixture = fixture
        .with_config(engine.config(runtime))
        .with_open_folders();
    let wanted = std::env::var("BRIG_CASE").unwrap_or_default();
    let (mut failed, mut skipped) = (0, 0);
    for case in cases()
        .into_iter()
        .filter(|case| case.name.contains(&wanted))
    {
        let begun = std::time::Instant::now();
        let verdict = case.run(&fixture).await;
        let took = begun.elapsed().as_secs_f32();
        match verdict {
            Verdict::Passed => println!("passed  {runtime} {} ({took:.1} s)", case.name),
            Verdict::Skipped(why) => {
                skipped += 1;
                brig_testing::skip(&format!("conformance {runtime} {}", case.name), &why);
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("FAILED  {runtime} {} ({took:.1} s): {why}", case.name);
            }
        }
    }
    println!("{runtime}: {failed} failed, {skipped} skipped");
    assert_eq!(failed, 0, "see above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runc_keeps_the_contract() {
    try_out("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crun_keeps_the_contract() {
    try_out("crun").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gvisor_keeps_the_contract() {
    try_out("gvisor").await;
}
