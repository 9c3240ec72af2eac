//! The same lifecycle for callers without an async runtime.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::backend::FileEntry;
use crate::request::TerminalSize;
use crate::{
    AgentId, Checkpoint, CheckpointName, ControlState, Error, Event, ExecutionId, ExecutionInfo,
    Language, Report, Request, Result, SessionConfig, SessionId, SessionInfo, SessionStatus,
};

/// The twin of [`crate::Sandbox`]. Not to be used inside an async runtime.
#[derive(Clone, Debug)]
pub struct Sandbox {
    inner: crate::Sandbox,
    runtime: Arc<Runtime>,
}

impl Sandbox {
    pub fn new(inner: crate::Sandbox) -> Result<Self> {
        // A thread of its own, so that deadlines hold also while nobody waits.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("brig")
            .enable_all()
            .build()
            .map_err(|error| Error::io("async runtime", error))?;
        Ok(Self {
            inner,
            runtime: Arc::new(runtime),
        })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn session(&self, inner: crate::Session) -> Session {
        Session {
            inner,
            runtime: self.runtime.clone(),
        }
    }

    pub fn create_session(
        &self,
        agent: &AgentId,
        id: Option<SessionId>,
        config: SessionConfig,
    ) -> Result<Session> {
        let created = self.wait(self.inner.create_session(agent, id, config));
        created.map(|session| self.session(session))
    }

    pub fn open_session(&self, agent: &AgentId, id: &SessionId) -> Result<Session> {
        self.wait(self.inner.open_session(agent, id))
            .map(|session| self.session(session))
    }

    pub fn list_sessions(&self) -> Result<Vec<SessionInfo>> {
        self.inner.list_sessions()
    }

    pub fn session_status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        self.inner.session_status(agent, id)
    }

    pub fn destroy_session(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        self.wait(self.inner.destroy_session(agent, id))
    }

    pub fn run_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<Report> {
        self.wait(self.inner.run_once(agent, config, request))
    }

    pub fn start_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<Running> {
        let inner = self.wait(self.inner.start_once(agent, config, request))?;
        Ok(Running {
            inner,
            runtime: self.runtime.clone(),
        })
    }
}

/// The twin of [`crate::Session`].
#[derive(Clone, Debug)]
pub struct Session {
    inner: crate::Session,
    runtime: Arc<Runtime>,
}

impl Session {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn agent(&self) -> &AgentId {
        self.inner.agent()
    }

    pub fn id(&self) -> &SessionId {
        self.inner.id()
    }

    pub fn status(&self) -> SessionStatus {
        self.inner.status()
    }

    pub fn enforcement(&self) -> Vec<ControlState> {
        self.inner.enforcement()
    }

    pub fn start(&self, request: Request) -> Result<Running> {
        let inner = self.wait(self.inner.start(request))?;
        Ok(Running {
            inner,
            runtime: self.runtime.clone(),
        })
    }

    pub fn execute_code(&self, language: Language, source: impl Into<Vec<u8>>) -> Result<Report> {
        self.wait(self.inner.execute_code(language, source))
    }

    pub fn run(&self, command: Vec<String>) -> Result<Report> {
        self.wait(self.inner.run(command))
    }

    pub fn execution(&self, id: &ExecutionId) -> Result<ExecutionInfo> {
        self.inner.execution(id)
    }

    pub fn executions(&self) -> Vec<ExecutionInfo> {
        self.inner.executions()
    }

    pub fn cancel(&self, id: &ExecutionId) -> bool {
        self.inner.cancel(id)
    }

    pub fn upload(&self, path: &str, mode: u32, content: impl Read + Send + Unpin) -> Result<u64> {
        self.wait(self.inner.upload(path, mode, Plain(content)))
    }

    pub fn download(&self, path: &str, into: impl Write + Send + Unpin) -> Result<u64> {
        self.wait(self.inner.download(path, Plain(into)))
    }

    pub fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        self.wait(self.inner.list_files(path))
    }

    pub fn save_state(&self, name: &CheckpointName) -> Result<Checkpoint> {
        self.wait(self.inner.save_state(name))
    }

    pub fn restore_state(&self, name: &CheckpointName) -> Result<()> {
        self.wait(self.inner.restore_state(name))
    }

    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.inner.checkpoints()
    }

    pub fn delete_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        self.wait(self.inner.delete_checkpoint(name))
    }

    pub fn fork(&self, name: &CheckpointName, id: Option<SessionId>) -> Result<Session> {
        let inner = self.wait(self.inner.fork(name, id))?;
        Ok(Session {
            inner,
            runtime: self.runtime.clone(),
        })
    }

    pub fn close(&self) -> Result<()> {
        self.wait(self.inner.close())
    }

    pub fn destroy(&self) -> Result<()> {
        self.wait(self.inner.destroy())
    }
}

/// The twin of [`crate::Running`].
#[derive(Debug)]
pub struct Running {
    inner: crate::Running,
    runtime: Arc<Runtime>,
}

impl Running {
    pub fn id(&self) -> &ExecutionId {
        self.inner.id()
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.runtime.block_on(self.inner.next_event())
    }

    pub fn cancel(&self) {
        self.inner.cancel();
    }

    pub fn signal(&self, signal: i32) {
        self.inner.signal(signal);
    }

    pub fn resize(&self, size: TerminalSize) {
        self.inner.resize(size);
    }

    pub fn wait(self) -> Result<Report> {
        self.runtime.block_on(self.inner.wait())
    }

    pub fn detach(self) -> ExecutionId {
        self.inner.detach()
    }
}

/// A plain reader or writer. It blocks the thread that waits, which is what that thread wants.
struct Plain<T>(T);

impl<R: Read + Unpin> AsyncRead for Plain<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = self.0.read(buffer.initialize_unfilled());
        Poll::Ready(read.map(|count| buffer.advance(count)))
    }
}

impl<W: Write + Unpin> AsyncWrite for Plain<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}
