//! The blocking API: the same types and calls for callers without an async runtime.

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

/// The blocking API of [`crate::Sandbox`]. Not to be used inside an async runtime.
#[derive(Clone, Debug)]
pub struct Sandbox {
    inner: crate::Sandbox,
    runtime: Arc<Runtime>,
}

impl Sandbox {
    /// Wraps a sandbox, with an async runtime of its own.
    pub fn new(inner: crate::Sandbox) -> Result<Self> {
        // A thread of its own, so that deadlines are enforced while no call is waiting.
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

    /// See [`crate::Sandbox::create_session`].
    pub fn create_session(
        &self,
        agent: &AgentId,
        id: Option<SessionId>,
        config: SessionConfig,
    ) -> Result<Session> {
        let created = self.wait(self.inner.create_session(agent, id, config));
        created.map(|session| self.session(session))
    }

    /// See [`crate::Sandbox::open_session`].
    pub fn open_session(&self, agent: &AgentId, id: &SessionId) -> Result<Session> {
        self.wait(self.inner.open_session(agent, id))
            .map(|session| self.session(session))
    }

    /// See [`crate::Sandbox::list_sessions`].
    pub fn list_sessions(&self) -> Result<Vec<SessionInfo>> {
        self.inner.list_sessions()
    }

    /// See [`crate::Sandbox::session_status`].
    pub fn session_status(&self, agent: &AgentId, id: &SessionId) -> SessionStatus {
        self.inner.session_status(agent, id)
    }

    /// See [`crate::Sandbox::destroy_session`].
    pub fn destroy_session(&self, agent: &AgentId, id: &SessionId) -> Result<()> {
        self.wait(self.inner.destroy_session(agent, id))
    }

    /// See [`crate::Sandbox::run_once`].
    pub fn run_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<Report> {
        self.wait(self.inner.run_once(agent, config, request))
    }

    /// See [`crate::Sandbox::start_once`].
    pub fn start_once(
        &self,
        agent: &AgentId,
        config: SessionConfig,
        request: Request,
    ) -> Result<ExecutionHandle> {
        let inner = self.wait(self.inner.start_once(agent, config, request))?;
        Ok(ExecutionHandle {
            inner,
            runtime: self.runtime.clone(),
        })
    }
}

/// The blocking API of [`crate::Session`].
#[derive(Clone, Debug)]
pub struct Session {
    inner: crate::Session,
    runtime: Arc<Runtime>,
}

impl Session {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// See [`crate::Session::agent`].
    pub fn agent(&self) -> &AgentId {
        self.inner.agent()
    }

    /// See [`crate::Session::id`].
    pub fn id(&self) -> &SessionId {
        self.inner.id()
    }

    /// See [`crate::Session::status`].
    pub fn status(&self) -> SessionStatus {
        self.inner.status()
    }

    /// See [`crate::Session::enforcement`].
    pub fn enforcement(&self) -> Vec<ControlState> {
        self.inner.enforcement()
    }

    /// See [`crate::Session::start`].
    pub fn start(&self, request: Request) -> Result<ExecutionHandle> {
        let inner = self.wait(self.inner.start(request))?;
        Ok(ExecutionHandle {
            inner,
            runtime: self.runtime.clone(),
        })
    }

    /// See [`crate::Session::execute_code`].
    pub fn execute_code(&self, language: Language, source: impl Into<Vec<u8>>) -> Result<Report> {
        self.wait(self.inner.execute_code(language, source))
    }

    /// See [`crate::Session::run`].
    pub fn run(&self, command: Vec<String>) -> Result<Report> {
        self.wait(self.inner.run(command))
    }

    /// See [`crate::Session::execution`].
    pub fn execution(&self, id: &ExecutionId) -> Result<ExecutionInfo> {
        self.inner.execution(id)
    }

    /// See [`crate::Session::executions`].
    pub fn executions(&self) -> Vec<ExecutionInfo> {
        self.inner.executions()
    }

    /// See [`crate::Session::cancel`].
    pub fn cancel(&self, id: &ExecutionId) -> bool {
        self.inner.cancel(id)
    }

    /// See [`crate::Session::upload`].
    pub fn upload(&self, path: &str, mode: u32, content: impl Read + Send + Unpin) -> Result<u64> {
        self.wait(self.inner.upload(path, mode, Plain(content)))
    }

    /// See [`crate::Session::download`].
    pub fn download(&self, path: &str, into: impl Write + Send + Unpin) -> Result<u64> {
        self.wait(self.inner.download(path, Plain(into)))
    }

    /// See [`crate::Session::list_files`].
    pub fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        self.wait(self.inner.list_files(path))
    }

    /// See [`crate::Session::save_state`].
    pub fn save_state(&self, name: &CheckpointName) -> Result<Checkpoint> {
        self.wait(self.inner.save_state(name))
    }

    /// See [`crate::Session::restore_state`].
    pub fn restore_state(&self, name: &CheckpointName) -> Result<()> {
        self.wait(self.inner.restore_state(name))
    }

    /// See [`crate::Session::checkpoints`].
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.inner.checkpoints()
    }

    /// See [`crate::Session::delete_checkpoint`].
    pub fn delete_checkpoint(&self, name: &CheckpointName) -> Result<()> {
        self.wait(self.inner.delete_checkpoint(name))
    }

    /// See [`crate::Session::fork`].
    pub fn fork(&self, name: &CheckpointName, id: Option<SessionId>) -> Result<Session> {
        let inner = self.wait(self.inner.fork(name, id))?;
        Ok(Session {
            inner,
            runtime: self.runtime.clone(),
        })
    }

    /// See [`crate::Session::close`].
    pub fn close(&self) -> Result<()> {
        self.wait(self.inner.close())
    }

    /// See [`crate::Session::destroy`].
    pub fn destroy(&self) -> Result<()> {
        self.wait(self.inner.destroy())
    }
}

/// The blocking API of [`crate::ExecutionHandle`].
#[derive(Debug)]
pub struct ExecutionHandle {
    inner: crate::ExecutionHandle,
    runtime: Arc<Runtime>,
}

impl ExecutionHandle {
    /// See [`crate::ExecutionHandle::id`].
    pub fn id(&self) -> &ExecutionId {
        self.inner.id()
    }

    /// See [`crate::ExecutionHandle::next_event`].
    pub fn next_event(&mut self) -> Option<Event> {
        self.runtime.block_on(self.inner.next_event())
    }

    /// See [`crate::ExecutionHandle::cancel`].
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// See [`crate::ExecutionHandle::signal`].
    pub fn signal(&self, signal: i32) {
        self.inner.signal(signal);
    }

    /// See [`crate::ExecutionHandle::resize`].
    pub fn resize(&self, size: TerminalSize) {
        self.inner.resize(size);
    }

    /// See [`crate::ExecutionHandle::wait`].
    pub fn wait(self) -> Result<Report> {
        self.runtime.block_on(self.inner.wait())
    }

    /// See [`crate::ExecutionHandle::detach`].
    pub fn detach(self) -> ExecutionId {
        self.inner.detach()
    }
}

/// A blocking reader or writer. It blocks only the thread that made the call.
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
