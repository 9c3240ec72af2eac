//! A new container for an old session: its larger files come from a volume of the engine, and are sent only once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::Engine;
use crate::common::counting::Counts;
use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{AgentId, Backend, Language, Sandbox, Session, SessionConfig, SessionId};
use serde_json::{Value, json};

const MUCH: u64 = 6 << 20;
const LABEL: &str = "brig.cache";

struct Case {
    engine: Engine,
    config: SessionConfig,
    folder: tempfile::TempDir,
    backend: Arc<DockerBackend>,
    sandbox: Sandbox,
    counts: Counts,
    agent: AgentId,
    id: SessionId,
}

impl Case {
    async fn new(engine: Engine, config: SessionConfig) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("socket");
        let counts = Counts::serve(&engine.socket, &socket);
        let options = Options {
            address: Some(Address::Unix(socket)),
            ..Options::default()
        };
        let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
        let sandbox = Sandbox::builder(Arc::clone(&backend)).state_dir(folder.path().join("state"));
        Self {
            config,
            engine,
            folder,
            backend,
            sandbox: sandbox.build().expect("a sandbox"),
            counts,
            agent: "agent".parse().expect("a name"),
            id: "s".parse().expect("a name"),
        }
    }

    /// A session with two files that are worth it.
    async fn with_files(self) -> Self {
        let config = self.config.clone();
        let created = self
            .sandbox
            .create_session(&self.agent, Some(self.id.clone()), config);
        let session = created.await.expect("a session");
        let code = format!(
            "import os
for name in 'ab': open(name, 'wb').write(os.urandom({MUCH}))
open('few', 'w').write('one')"
        );
        assert_eq!(python(&session, &code).await, "");
        session.close().await.expect("closed");
        self
    }

    /// In a new container: what the code says, and how many bytes the engine got.
    async fn cold(&self, code: &str) -> (String, u64) {
        self.counts.take();
        let session = self.open().await;
        let said = python(&session, code).await;
        session.close().await.expect("closed");
        (said, self.counts.take().0)
    }

    async fn open(&self) -> Session {
        let opened = self.sandbox.open_session(&self.agent, &self.id).await;
        opened.expect("the session")
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("state/sessions/agent/s")
    }

    /// The volumes of this session.
    fn volumes(&self) -> Vec<String> {
        volumes(&self.engine, &self.directory())
    }
}

fn volumes(engine: &Engine, session: &Path) -> Vec<String> {
    let output = engine.curl("GET", "/volumes");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = all["Volumes"].as_array().cloned().unwrap_or_default();
    let ours = all.iter().filter(|one| {
        one["Labels"][LABEL]
            .as_str()
            .is_some_and(|path| Path::new(path) == session)
    });
    ours.map(|one| one["Name"].as_str().expect("a name").to_owned())
        .collect()
}

async fn python(session: &Session, code: &str) -> String {
    let report = session.execute_code(Language::Python, code).await;
    let outcome = report.expect("a report").outcome;
    let both = [outcome.stdout.bytes, outcome.stderr.bytes].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// What the files of the workspace are.
const DIGEST: &str = "
import hashlib, os
for name in sorted(os.listdir('.')):
    print(name, hashlib.sha256(open(name, 'rb').read()).hexdigest())";

/// What code sees of the cache, and what it can do there.
const LOOK: &str = "
import os
print(sum(os.stat('/.brig/cache/' + name).st_size for name in os.listdir('/.brig/cache')))
for name in ['new', *os.listdir('/.brig/cache')]:
    try:
        open('/.brig/cache/' + name, 'ab')
        print('wrote', name)
    except OSError:
        pass";

async fn on_runtime(runtime: &str) {
    if let Some(engine) = Engine::with(runtime, &format!("cached files on {runtime}")) {
        let config = engine.config(runtime);
        check_sent_once(engine, config).await;
    }
}

pub(crate) async fn check_sent_once(engine: Engine, config: SessionConfig) {
    let case = Case::new(engine, config).await.with_files().await;
    assert!(case.volumes().is_empty(), "nothing to bring in yet");
    let (digests, sent) = case.cold(DIGEST).await;
    assert_eq!(digests.lines().count(), 3, "{digests}");
    assert!(sent > 2 * MUCH, "control: it was sent: {sent}");
    let volumes = case.volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");

    // The second time the guest compares them, and then no more.
    for _ in 0..2 {
        let (again, sent) = case.cold(DIGEST).await;
        assert_eq!(again, digests);
        assert!(sent < MUCH / 4, "{sent} bytes were sent");
    }
    assert_eq!(case.cold(LOOK).await.0, format!("{}\n", 2 * MUCH));

    // What is removed can't be read there either, and what is changed is sent, alone.
    let (_, sent) = case
        .cold("import os; os.remove('a'); open('b', 'r+').write('x')")
        .await;
    assert!(sent < MUCH / 4, "{sent} bytes were sent");
    let (seen, sent) = case.cold(LOOK).await;
    assert_eq!(seen, format!("{MUCH}\n"));
    assert!(
        (MUCH..MUCH * 3 / 2).contains(&sent),
        "{sent} bytes were sent"
    );
    let (now, _) = case.cold(DIGEST).await;
    let before: Vec<&str> = digests.lines().collect();
    let now: Vec<&str> = now.lines().collect();
    assert_eq!(now.len(), 2);
    assert!(now[0].starts_with("b ") && now[0] != before[1] && now[1] == before[2]);
    assert_eq!(case.volumes(), volumes);

    let session = case.open().await;
    session.destroy().await.expect("destroyed");
    assert_eq!(case.volumes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_files_are_sent_once_on_runc() {
    on_runtime("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_files_are_sent_once_on_gvisor() {
    on_runtime("gvisor").await;
}

/// Writes to a volume, as anyone who may use the engine can.
fn tamper(case: &Case, volume: &str, number: usize) {
    let engine = &case.engine;
    let body = json!({
        "Image": engine.image,
        "Cmd": ["true"],
        "HostConfig": {
            "NetworkMode": "none",
            "Mounts": [{"Type": "volume", "Source": volume, "Target": "/v"}],
        },
    });
    let id = engine.ask("/containers/create", &body)["Id"].clone();
    let id = id.as_str().expect("an id");
    let folder = tempfile::tempdir().expect("folder");
    let file = std::fs::File::create(folder.path().join(number.to_string())).expect("create");
    file.set_len(MUCH).expect("the same size");
    let archive = folder.path().join("tar");
    let packed = Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .arg("-cf")
        .arg(&archive)
        .arg(number.to_string())
        .status();
    assert!(packed.expect("tar").success());
    let sent = Command::new("curl")
        .args(["--silent", "--fail", "--unix-socket"])
        .arg(&engine.socket)
        .args(["-X", "PUT", "-H", "Content-Type: application/x-tar", "-T"])
        .arg(&archive)
        .arg(format!("http://engine/containers/{id}/archive?path=/v"))
        .status();
    assert!(sent.expect("curl").success());
    engine.curl("DELETE", &format!("/containers/{id}?force=true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_not_as_noted_is_thrown_away() {
    let Some(engine) = Engine::with("runc", "a cache that was changed") else {
        return;
    };
    let config = engine.config("runc");
    let case = Case::new(engine, config).await.with_files().await;
    let (digests, _) = case.cold(DIGEST).await;
    let noted = case.directory().join("cache.json");
    let note = || std::fs::read_to_string(&noted).expect("a note");
    type Spoil<'a> = Box<dyn Fn(&str) + 'a>;
    let spoil: [(&str, Spoil); 4] = [
        ("changed", Box::new(|volume| tamper(&case, volume, 0))),
        (
            "removed",
            Box::new(|volume| {
                case.engine.curl("DELETE", &format!("/volumes/{volume}"));
            }),
        ),
        (
            "left half done",
            Box::new(|_| {
                let half = note().replace("\"changing\":false", "\"changing\":true");
                std::fs::write(&noted, half).expect("write");
            }),
        ),
        (
            "not readable",
            Box::new(|_| std::fs::write(&noted, "{").expect("write")),
        ),
    ];
    for (what, spoil) in spoil {
        // Compared, and found to be as noted.
        for _ in 0..2 {
            let (again, sent) = case.cold(DIGEST).await;
            assert_eq!(again, digests);
            assert!(sent < MUCH / 4 || what != "changed", "control: {sent}");
        }
        let before = case.volumes();
        let newest = before.last().expect("a volume").clone();
        spoil(&newest);
        let (again, sent) = case.cold(DIGEST).await;
        assert_eq!(again, digests, "{what}");
        assert!(sent > 2 * MUCH, "{what}: only {sent} bytes were sent");
        // A note that can't be read may have named any volume, so it is for the next sweep.
        case.backend.sweep().await.expect("swept");
        let after = case.volumes();
        assert!(after.len() <= 1, "{what}: {after:?}");
        assert!(!after.contains(&newest), "{what}");
    }
    // A session that was removed without its backend.
    case.cold("pass").await;
    assert_eq!(case.volumes().len(), 1);
    std::fs::remove_dir_all(case.directory()).expect("removed");
    case.backend.sweep().await.expect("swept");
    assert_eq!(case.volumes(), [""; 0]);
}
