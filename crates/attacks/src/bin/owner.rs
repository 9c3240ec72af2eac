//! Owns a sandbox of the native backend for as long as it is told to.

use std::process::ExitCode;
use std::sync::Arc;

use brig_attacks::owner;

fn main() -> ExitCode {
    let Some(task) = std::env::args()
        .nth(1)
        .and_then(|text| serde_json::from_str(&text).ok())
    else {
        eprintln!("usage: owner TASK");
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(owner::serve(
        Arc::new(brig_native::NativeBackend::new()),
        task,
    ));
    ExitCode::SUCCESS
}
