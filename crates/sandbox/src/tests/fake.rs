use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_audit::{Command, Egress, Tool};
use brig_egress::{Layer, RuleSet, Rules};
use brig_layers::{Unchanged, merge, mirror};
use bytes::Bytes;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::backend::{
    BackendKind, ExecSignal, Execution, FileEntry, FileKind, Permit, Saved, StateKind,
};
use crate::request::Work;
use crate::shared::lock;
use crate::{
    AgentId, Backend, BackendId, Capabilities, CheckpointName, Control, ControlState, Controls,
    Error, Event, InitialState, Instance, KillReason, Outcome, Output, Plan, Result, SessionConfig,
    SessionId, Strength, Unavailable, Usage,
};

static KIND: BackendKind = BackendKind {
    name: "fake",
    title: "Fake",
    options: &[],
    settings: &[],
    mounts_scripts: false,
};

#[derive(Debug, Default)]
pub(super) struct Fake {
    /// Whether it starts from a copy of everything, and saves everything.
    pub copies: bool,
    pub refuse_to_start: AtomicBool,
    pub refuse_to_save: Arc<AtomicBool>,
    /// Holds back every start until it is told.
    pub gate: Mutex<Option<Arc<Notify>>>,
    /// How many starts have been held back.
    pub waiting: AtomicUsize,
    pub started: AtomicUsize,
    pub alive: Arc<AtomicUsize>,
    pub ran: Arc<AtomicUsize>,
    pub plans: Mutex<Vec<Plan>>,
    /// The rules of those instances that have a network.
    pub networks: Mutex<Vec<Rules>>,
}

#[async_trait]
impl Backend for Fake {
    fn id(&self) -> &BackendId {
        const ID: &BackendId = &BackendId::of("fake");
        ID
    }

    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    async fn probe(&self, _config: &SessionConfig) -> Result<Capabilities, Unavailable> {
        let state = |control| ControlState {
            control,
            strength: Strength::Enforced,
            by: "pretence".into(),
            fix: None,
        };
        let controls = Controls(Control::ALL.into_iter().map(state).collect());
        Ok(Capabilities {
            state: match self.copies {
                true => StateKind::Copied,
                false => StateKind::Layered,
            },
            ..Capabilities::new(controls)
        })
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        assert!(match plan.initial() {
            InitialState::Empty => true,
            InitialState::Layers(_) => !self.copies,
            InitialState::Copy(_) => self.copies,
            InitialState::Snapshot(_) => false,
        });
        let gate = lock(&self.gate).clone();
        if let Some(gate) = gate {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            gate.notified().await;
        }
        if self.refuse_to_start.load(Ordering::SeqCst) {
            return Err(Error::Setup {
                step: "pretence".into(),
                problem: "told to fail".into(),
            });
        }
        let folder = tempfile::tempdir().map_err(|error| Error::io("fake", error))?;
        let network = plan.network();
        let network = network.is_on().then(|| Rules::new(network.rules()));
        lock(&self.networks).extend(network.clone());
        let instance = FakeInstance {
            network,
            copied: self.copies,
            layers: plan.initial().directories().to_vec(),
            ended: Notify::new(),
            dead: AtomicBool::new(false),
            alive: self.alive.clone(),
            ran: self.ran.clone(),
            refuse_to_save: self.refuse_to_save.clone(),
            folder,
        };
        instance.fill().map_err(|error| Error::io("fake", error))?;
        self.started.fetch_add(1, Ordering::SeqCst);
        self.alive.fetch_add(1, Ordering::SeqCst);
        lock(&self.plans).push(plan.clone());
        Ok(Box::new(instance))
    }

    async fn sweep(&self) -> Result<usize> {
        Ok(0)
    }
}

#[derive(Debug)]
struct FakeInstance {
    network: Option<Rules>,
    refuse_to_save: Arc<AtomicBool>,
    folder: TempDir,
    copied: bool,
    layers: Vec<PathBuf>,
    ended: Notify,
    dead: AtomicBool,
    alive: Arc<AtomicUsize>,
    ran: Arc<AtomicUsize>,
}

impl Drop for FakeInstance {
    fn drop(&mut self) {
        self.end();
    }
}

impl FakeInstance {
    fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// Copies of what the layers hold: a real instance would never write to them either.
    fn fill(&self) -> io::Result<()> {
        let merged = self.folder.path().join("merged");
        fs::create_dir(&merged)?;
        merge(&self.layers, &merged)?;
        copy_folder(&merged, &self.workspace())
    }

    fn end(&self) {
        if !self.dead.swap(true, Ordering::SeqCst) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
        self.ended.notify_waiters();
    }

    async fn until_end(&self) {
        loop {
            let ended = self.ended.notified();
            if self.dead.load(Ordering::SeqCst) {
                return;
            }
            ended.await;
        }
    }

    async fn work(&self, execution: &mut Execution) -> Result<(i32, Vec<u8>)> {
        let argv = match &execution.work {
            Work::Code { source, .. } => return Ok((0, source.clone())),
            Work::Command(argv) => argv.clone(),
        };
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let file = |name: &str| self.workspace().join(name);
        match argv[..] {
            ["echo", text] => Ok((0, format!("{text}\n").into_bytes())),
            ["exit", code] => Ok((code.parse().unwrap_or(1), Vec::new())),
            ["write", name, text] => Ok((i32::from(fs::write(file(name), text).is_err()), vec![])),
            ["read", name] => match fs::read(file(name)) {
                Ok(content) => Ok((0, content)),
                Err(_) => Ok((1, Vec::new())),
            },
            ["rm", name] => Ok((i32::from(fs::remove_file(file(name)).is_err()), Vec::new())),
            ["stdin"] => {
                let mut content = Vec::new();
                if let Some(stdin) = &mut execution.stdin {
                    stdin
                        .read_to_end(&mut content)
                        .await
                        .map_err(|e| Error::io("stdin", e))?;
                }
                Ok((0, content))
            }
            ["die"] => {
                self.end();
                Err(Error::InstanceLost("told to die".into()))
            }
            ["ask" | "differ", ..] => Ok((0, Vec::new())),
            ["greedy" | "deaf-greedy"] => {
                let reason = KillReason::Processes { limit: 1 };
                let _ = execution.supervisor.send(ExecSignal::Kill(reason));
                std::future::pending().await
            }
            ["sleep" | "deaf"] | ["beg", ..] => std::future::pending().await,
            _ => Err(Error::CannotRun {
                program: argv.join(" "),
                exit_code: 127,
                problem: "not found".into(),
            }),
        }
    }
}

/// `ask 3 …` asks three times for each thing there is, `differ 3 …` for another program each time, and
/// `beg …` until it is ended. Whether it
/// may is decided elsewhere: here, whatever speaks of evil may not.
fn ask(permit: &Permit, argv: &[String]) {
    let (times, what) = match argv {
        [ask, times, what @ ..] if ask == "ask" || ask == "differ" => {
            (times.parse().unwrap_or(1), what)
        }
        [beg, what @ ..] if beg == "beg" => (1, what),
        _ => return,
    };
    let allowed = !what.concat().contains("evil");
    let code = String::from("test");
    let attempts = permit.attempts();
    for n in 0..times {
        // As a backend has to: what is not on record is not answered.
        let _ = attempts.egress(Egress {
            allowed,
            code: code.clone(),
            rule: None,
            layer: None,
            protocol: "https".into(),
            host: what.concat(),
            port: 443,
            ..Egress::default()
        });
        let _ = attempts.command(Command {
            allowed,
            code: code.clone(),
            rule: None,
            program: match argv[0].as_str() {
                "differ" => format!("curl{n}"),
                _ => "curl".into(),
            },
            path: Some(what.concat()),
            arguments: what.to_vec(),
            parent: Some(what.concat()),
            caller: Some(what.concat()),
            ..Command::default()
        });
        let _ = attempts.tool(Tool {
            allowed,
            code: code.clone(),
            rule: None,
            tool: what.concat(),
            arguments_digest: None,
            success: Some(true),
            ..Tool::default()
        });
    }
}

#[async_trait]
impl Instance for FakeInstance {
    async fn execute(&self, permit: Permit, mut execution: Execution) -> Result<Outcome> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        if let Work::Command(argv) = &execution.work {
            ask(&permit, argv);
        }
        let begun = Instant::now();
        let deaf = matches!(&execution.work, Work::Command(argv) if argv[0].starts_with("deaf"));
        let (_, unheard) = tokio::sync::mpsc::unbounded_channel();
        let mut signals = std::mem::replace(&mut execution.signals, unheard);
        let killed = async {
            loop {
                match signals.recv().await {
                    Some(ExecSignal::Kill(reason)) if !deaf => return reason,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        let events = execution.events.take();
        let (exit_code, stdout, killed) = tokio::select! {
            result = self.work(&mut execution) => {
                let (code, stdout) = result?;
                (code, stdout, None)
            }
            reason = killed => (137, Vec::new(), Some(reason)),
            () = self.until_end() => return Err(Error::InstanceLost("it was ended".into())),
        };
        if let Some(events) = events {
            let _ = events.send(Event::Started).await;
            let _ = events
                .send(Event::Stdout(Bytes::from(stdout.clone())))
                .await;
        }
        Ok(outcome(exit_code, stdout, killed, begun.elapsed()))
    }

    async fn put_file(
        &self,
        path: &str,
        _mode: u32,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<u64> {
        let failed = |error| Error::io("fake", error);
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).await.map_err(failed)?;
        fs::write(self.workspace().join(path), &bytes).map_err(failed)?;
        Ok(bytes.len() as u64)
    }

    async fn get_file(
        &self,
        path: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let failed = |error| Error::io("fake", error);
        let bytes = fs::read(self.workspace().join(path)).map_err(failed)?;
        into.write_all(&bytes).await.map_err(failed)?;
        Ok(bytes.len() as u64)
    }

    async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        let entries =
            fs::read_dir(self.workspace().join(path)).map_err(|e| Error::io("fake", e))?;
        Ok(entries
            .flatten()
            .map(|entry| FileEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                raw: entry.file_name().into_encoded_bytes(),
                kind: FileKind::File,
                size: 0,
                mode: 0o644,
            })
            .collect())
    }

    /// Everything there is, and a mark for every name of the layers that is not there any more,
    /// unless they were copied.
    async fn save(&self, into: &Path) -> Result<Saved> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(Error::InstanceLost("it was ended".into()));
        }
        if self.refuse_to_save.load(Ordering::SeqCst) {
            return Err(Error::io("fake", io::ErrorKind::StorageFull));
        }
        let save = || {
            let upper = tempfile::tempdir()?;
            let all = upper.path().join("upper");
            copy_folder(&self.workspace(), &all)?;
            for entry in fs::read_dir(self.folder.path().join("merged"))? {
                let name = all.join(entry?.file_name());
                if !self.copied && !name.exists() {
                    mknodat(CWD, &name, FileType::CharacterDevice, Mode::empty(), 0)?;
                }
            }
            mirror(
                File::open(&all)?.as_fd(),
                into,
                !self.copied,
                u64::MAX,
                Unchanged::Content,
                None,
            )
        };
        save()
            .map(|_| Saved::Directory)
            .map_err(|error| Error::io("fake", error))
    }

    fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::SeqCst)
    }

    async fn network(&self) -> Result<Option<Arc<RuleSet>>> {
        Ok(self.network.as_ref().map(Rules::current))
    }

    async fn change_network(&self, layer: Layer) -> Result<()> {
        if let Some(rules) = &self.network {
            rules.change(|layers| {
                layers.retain(|other| other.kind != layer.kind);
                layers.push(layer);
            });
        }
        Ok(())
    }

    async fn destroy(&self) -> Result<()> {
        self.end();
        Ok(())
    }
}

fn outcome(code: i32, stdout: Vec<u8>, killed: Option<KillReason>, duration: Duration) -> Outcome {
    Outcome {
        exit_code: code,
        signal: killed.as_ref().map(|_| 9),
        stdout: Output {
            total: stdout.len() as u64,
            bytes: stdout,
        },
        stderr: Output::default(),
        duration,
        killed,
        usage: Usage::default(),
        lost: None,
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

pub(super) fn agent() -> AgentId {
    "agent".parse().expect("name")
}

pub(super) fn session(name: &str) -> SessionId {
    name.parse().expect("name")
}

pub(super) fn checkpoint(name: &str) -> CheckpointName {
    name.parse().expect("name")
}

/// The words of a command.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(Into::into).collect()
}
