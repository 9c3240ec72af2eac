//! The machine of a sandbox: a sandbox of this machine without a network. One program in it runs all
//! commands, so that what a command leaves behind goes on, as on a real machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use brig_native::NativeBackend;
use brig_sandbox::config::MountSpec;
use brig_sandbox::{Event, Language, Request, Sandbox, Session, SessionConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};

const AGENT: &str = r#"
import json, subprocess, sys, threading
lock = threading.Lock()
def run(message):
    done = subprocess.run(["/bin/sh", "-c", message["command"]], cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, env={"PATH": "/opt/stand-in:/usr/local/bin:/usr/bin:/bin"})
    text = lambda data: data.decode("utf-8", "replace")
    answer = json.dumps({"number": message["number"], "exitCode": done.returncode,
        "stdout": text(done.stdout), "stderr": text(done.stderr)})
    with lock:
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
for line in sys.stdin:
    threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()
"#;

/// Programs here are an ordinary user already, who can't drop privileges that it does not have.
const SETPRIV: &str =
    "#!/bin/sh\nwhile :; do case $1 in --*) shift ;; *) break ;; esac; done\nexec \"$@\"\n";

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

#[derive(Debug)]
pub(super) struct Machine {
    /// `base` and `workspace` are mounted.
    folder: TempDir,
    commands: mpsc::UnboundedSender<String>,
    waiting: Waiting,
    session: Session,
}

impl Machine {
    /// With these files in the workspace.
    pub(super) async fn start(files: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["base", "tools"] {
            std::fs::create_dir(place(name)).unwrap();
        }
        match files {
            Some(files) => copy(files, &place("workspace")),
            None => std::fs::create_dir(place("workspace")).unwrap(),
        }
        let shim = place("tools/setpriv");
        std::fs::write(&shim, SETPRIV).unwrap();
        let mut mode = std::fs::metadata(&shim).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&shim, mode).unwrap();
        let mount = |source: PathBuf, target: &str, writable| MountSpec {
            source,
            target: target.into(),
            writable,
        };
        let config = SessionConfig {
            workspace: Some(place("workspace")),
            mounts: vec![
                mount(place("base"), "/var/lib/brig", true),
                mount(place("tools"), "/opt/stand-in", false),
            ],
            ..SessionConfig::default()
        };
        let sandbox = Sandbox::builder(NativeBackend::new()).build().unwrap();
        let agent = "stand-in".parse().unwrap();
        let session = sandbox.create_session(&agent, None, config).await.unwrap();
        let (commands, waiting) = serve(&session).await;
        Self {
            folder,
            commands,
            waiting,
            session,
        }
    }

    pub(super) async fn run(&self, command: &str) -> Value {
        let number = rand();
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().insert(number, answer);
        let line = json!({"number": number, "command": command}).to_string();
        self.commands.send(line + "\n").unwrap();
        let mut done = answered.await.unwrap();
        done.as_object_mut().unwrap().remove("number");
        done["executionTimeMs"] = json!(1);
        done
    }

    /// Where a path of the sandbox is on this machine.
    pub(super) fn place(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix("/var/lib/brig/")?;
        (!below.contains("..")).then(|| self.folder.path().join("base").join(below))
    }

    /// A copy of its files.
    pub(super) fn save(&self) -> TempDir {
        let into = tempfile::tempdir().unwrap();
        copy(
            &self.folder.path().join("workspace"),
            &into.path().join("files"),
        );
        into
    }

    pub(super) async fn end(&self) {
        let _ = self.session.destroy().await;
    }
}

fn rand() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status();
    assert!(copied.unwrap().success());
}

async fn serve(session: &Session) -> (mpsc::UnboundedSender<String>, Waiting) {
    let (stdin, mut writer) = tokio::io::duplex(64 * 1024);
    let mut request = Request::code(Language::Python, AGENT);
    request.stdin = Some(Box::new(stdin));
    request.stream = true;
    request.timeout = Some(std::time::Duration::from_secs(3600));
    let mut handle = session.start(request).await.unwrap();
    let (commands, mut sent) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(line) = sent.recv().await {
            if writer.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let waiting = Waiting::default();
    let answers = waiting.clone();
    tokio::spawn(async move {
        let mut text = Vec::new();
        while let Some(event) = handle.next_event().await {
            match event {
                Event::Stdout(bytes) => text.extend_from_slice(&bytes),
                Event::Stderr(bytes) => eprint!("{}", String::from_utf8_lossy(&bytes)),
                _ => {}
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let done: Value = serde_json::from_slice(&line).unwrap();
                let number = done["number"].as_u64().unwrap();
                if let Some(answer) = answers.lock().unwrap().remove(&number) {
                    let _ = answer.send(done);
                }
            }
        }
        answers.lock().unwrap().clear();
    });
    (commands, waiting)
}
