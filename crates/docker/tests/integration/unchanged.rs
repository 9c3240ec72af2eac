//! A new container for an old session: what its programs do not change is not sent back.

use std::sync::Arc;

use crate::common::Engine;
use crate::common::counting::Counts;
use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{AgentId, Language, Sandbox, Session, SessionId};

const MUCH: u64 = 8 << 20;

async fn python(session: &Session, code: &str) -> String {
    let report = session.execute_code(Language::Python, code).await;
    let outcome = report.expect("a report").outcome;
    let both = [outcome.stdout.bytes, outcome.stderr.bytes].concat();
    String::from_utf8_lossy(&both).into_owned()
}

async fn unchanged(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("unchanged files on {runtime}")) else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("socket");
    let counts = Counts::serve(&engine.socket, &socket);
    let options = Options {
        address: Some(Address::Unix(socket)),
        ..Options::default()
    };
    let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
    let sandbox = Sandbox::builder(backend).state_dir(folder.path().join("state"));
    let sandbox = sandbox.build().expect("a sandbox");
    let agent: AgentId = "agent".parse().expect("a name");
    let id: SessionId = "s".parse().expect("a name");
    let config = engine.config(runtime);
    let session = sandbox
        .create_session(&agent, Some(id.clone()), config)
        .await;
    let session = session.expect("a session");
    let write = format!(
        "import os; open('much', 'wb').write(os.urandom({MUCH})); open('few', 'w').write('one')"
    );
    assert_eq!(python(&session, &write).await, "");
    session.close().await.expect("closed");
    assert!(counts.take().1 > MUCH, "control: it was sent");

    let change = "
import mmap, os
before = os.stat('few')
with open('few', 'r+b') as file, mmap.mmap(file.fileno(), 3) as memory:
    memory[0:3] = b'two'
os.utime('few', ns=(before.st_atime_ns, before.st_mtime_ns))
print(open('few').read())";
    // The second time on top of what was changed.
    for (code, said) in [
        ("pass", ""),
        (change, "two\n"),
        ("print(open('few').read())", "two\n"),
    ] {
        let session = sandbox
            .open_session(&agent, &id)
            .await
            .expect("the session");
        counts.take();
        assert_eq!(python(&session, code).await, said);
        session.close().await.expect("closed");
        let (_, sent) = counts.take();
        assert!(sent < MUCH / 4, "{code}: {sent} bytes were sent back");
    }
    let session = sandbox
        .open_session(&agent, &id)
        .await
        .expect("the session");
    let size = python(&session, "import os; print(os.stat('much').st_size)").await;
    assert_eq!(size, format!("{MUCH}\n"));
    session.destroy().await.expect("destroyed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_not_sent_back_on_runc() {
    unchanged("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_not_sent_back_on_gvisor() {
    unchanged("gvisor").await;
}
