//! Owns a sandbox for as long as it is told to: of the native backend, or of an engine.

use std::process::ExitCode;
use std::sync::Arc;

use brig_attacks::owner;
use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{Backend, Error};

async fn backend(words: &[String]) -> Result<Arc<dyn Backend>, Error> {
    let [socket, image, runtime] = words else {
        return Ok(Arc::new(brig_native::NativeBackend::new()));
    };
    let options = Options {
        address: Some(Address::Unix(socket.into())),
        image: Some(image.clone()),
        runtime: Some(runtime.clone()),
        ..Options::default()
    };
    Ok(Arc::new(DockerBackend::connect(options).await?))
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = words
        .pop()
        .and_then(|text| serde_json::from_str(&text).ok())
    else {
        eprintln!("usage: owner [SOCKET IMAGE RUNTIME] TASK");
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
    runtime.block_on(async {
        match backend(&words).await {
            Ok(backend) => {
                owner::serve(backend, task).await;
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    })
}
