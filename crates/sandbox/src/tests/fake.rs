use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use brig_audit::{Command, Egress, Tool};
use brig_egress::Rules;
use bytes::Bytes;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::backend::{ExecCommand, ExecIo, FileEntry, FileKind, Permit};
use crate::layers::{merge, mirror};
use crate::request::Work;
use crate::shared::lock;
use crate::{
    AgentId, Backend, CheckpointName, Control, ControlState, Controls, Error, Event, ExecRequest,
    Instance, KillReason, Limits, Outcome, Output, Plan, Result, SessionId, Strength, Usage,
};

#[derive(Debug, Default)]
pub struct Fake {
    /// Whether it starts from a copy of everything, and saves everything.
    pub copies: bool,
    pub refuse_to_start: AtomicBool,
    /// Holds back every start until it is told.
    pub gate: Mutex<Option<Arc<Notify>>>,
    pub started: AtomicUsize,
    pub alive: Arc<AtomicUsize>,
    pub ran: Arc<AtomicUsize>,
    pub plans: Mutex<Vec<Plan>>,
    /// The rules of those instances that have a network.
    pub networks: Mutex<Vec<Rules>>,
}

#[async_trait]
impl Backend for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn controls(&self, _limits: &Limits) -> Controls {
        let state = |control| ControlState {
            control,
            strength: Strength::Enforced,
            by: "pretence".into(),
            mend: None,
        };
        Controls(Control::ALL.into_iter().map(state).collect())
    }

    fn copies_layers(&self) -> bool {
        self.copies
    }

    async fn create(&self, plan: &Plan) -> Result<Box<dyn Instance>> {
        assert!(!self.copies || plan.layers().len() < 2);
        let gate = lock(&self.gate).clone();
        if let Some(gate) = gate {
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
            layers: plan.layers().to_vec(),
            ended: Notify::new(),
            dead: AtomicBool::new(false),
            alive: self.alive.clone(),
            ran: self.ran.clone(),
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

    async fn work(&self, work: Work, io: &mut ExecIo) -> Result<(i32, Vec<u8>)> {
        let argv = match work {
            Work::Code { source, .. } => return Ok((0, source)),
            Work::Command(argv) => argv,
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
                if let Some(stdin) = &mut io.stdin {
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
            ["ask", ..] => Ok((0, Vec::new())),
            ["sleep" | "deaf"] | ["beg", ..] => std::future::pending().await,
            _ => Err(Error::CannotRun {
                program: argv.join(" "),
                exit_code: 127,
                problem: "not found".into(),
            }),
        }
    }
}

/// `ask 3 …` asks three times for each thing there is, and `beg …` until it is ended. Whether it
/// may is decided elsewhere: here, whatever speaks of evil may not.
fn ask(permit: &Permit, argv: &[String]) {
    let (times, what) = match argv {
        [ask, times, what @ ..] if ask == "ask" => (times.parse().unwrap_or(1), what),
        [beg, what @ ..] if beg == "beg" => (1, what),
        _ => return,
    };
    let allowed = !what.concat().contains("evil");
    let code = String::from("test");
    let attempts = permit.attempts();
    for _ in 0..times {
        // As a backend has to: what is not on record is not answered.
        let _ = attempts.egress(Egress {
            allowed,
            code: code.clone(),
            rule: None,
            layer: None,
            carried: None,
            protocol: "https".into(),
            host: what.concat(),
            port: 443,
        });
        let _ = attempts.command(Command {
            allowed,
            code: code.clone(),
            rule: None,
            program: "curl".into(),
            path: Some(what.concat()),
            arguments: what.to_vec(),
            parent: Some(what.concat()),
            caller: Some(what.concat()),
        });
        let _ = attempts.tool(Tool {
            allowed,
            code: code.clone(),
            rule: None,
            tool: what.concat(),
            arguments_digest: None,
            success: Some(true),
        });
    }
}

#[async_trait]
impl Instance for FakeInstance {
    async fn execute(
        &self,
        permit: Permit,
        request: ExecRequest,
        mut io: ExecIo,
    ) -> Result<Outcome> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        if let Work::Command(argv) = &request.work {
            ask(&permit, argv);
        }
        let begun = Instant::now();
        let deaf = matches!(&request.work, Work::Command(argv) if argv == &["deaf"]);
        let (_, unheard) = tokio::sync::mpsc::unbounded_channel();
        let mut commands = std::mem::replace(&mut io.commands, unheard);
        let killed = async {
            loop {
                match commands.recv().await {
                    Some(ExecCommand::Kill(reason)) if !deaf => return reason,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        let events = io.events.take();
        let (exit_code, stdout, killed) = tokio::select! {
            result = self.work(request.work, &mut io) => {
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
    async fn save(&self, into: &Path) -> Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(Error::InstanceLost("it was ended".into()));
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
            mirror(File::open(&all)?.as_fd(), into, !self.copied, u64::MAX)
        };
        save().map(|_| ()).map_err(|error| Error::io("fake", error))
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::SeqCst)
    }

    fn network(&self) -> Option<&Rules> {
        self.network.as_ref()
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

pub fn agent() -> AgentId {
    "agent".parse().expect("name")
}

pub fn session(name: &str) -> SessionId {
    name.parse().expect("name")
}

pub fn checkpoint(name: &str) -> CheckpointName {
    name.parse().expect("name")
}

/// The words of a command.
pub fn words(text: &str) -> Vec<String> {
    text.split(' ').map(Into::into).collect()
}
