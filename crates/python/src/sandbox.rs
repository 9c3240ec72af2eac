//! A sandbox before its session: where it runs, under what, and with which functions of the host.

use std::sync::{Arc, Mutex, PoisonError};

use brig_policy::Compat;
use brig_sandbox::{AgentId, Error, PolicyFiles, Request, SessionConfig, ToolRegistry};
use pyo3::prelude::*;
use tokio::sync::OnceCell;

use crate::approver::PythonApprover;
use crate::backends::{self, Credential};
use crate::config::{self, Setup};
use crate::error;
use crate::execution::Execution;
use crate::operation::Operation;
use crate::owned::Owned;
use crate::policy::Policy;
use crate::receipts::{Receipts, Store};
use crate::report::Report;
use crate::request::request;
use crate::session::Session;
use crate::tools;

#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Sandbox(Owned<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    agent: AgentId,
    config: SessionConfig,
    tools: ToolRegistry,
    approver: Option<Arc<PythonApprover>>,
    credential: Credential,
    receipts: Arc<Store>,
    opened: OnceCell<brig_sandbox::Sandbox>,
    /// The session, once it was created: for a caller that went away meanwhile.
    session: Mutex<Option<brig_sandbox::Session>>,
}

#[pymethods]
impl Sandbox {
    /// Nothing is started yet, and nothing is written. The functions are the approver and what gives tokens.
    #[new]
    fn new(
        py: Python<'_>,
        setup: &str,
        config: &str,
        policies: Vec<Bound<'_, Policy>>,
        tools: Vec<(String, Py<PyAny>)>,
        functions: (Option<Py<PyAny>>, Option<Py<PyAny>>),
        receipts: &Receipts,
    ) -> PyResult<Self> {
        let (approver, credential) = functions;
        let receipts = receipts.store(py)?;
        let made = || {
            let setup = config::setup(setup)?;
            let mut files = PolicyFiles::default();
            for policy in &policies {
                files = policy.get().added_to(files);
            }
            let config = config::session_config(config)?;
            let (config, _) = config.under_files(&files, Compat::Strict)?;
            Ok(Inner {
                agent: setup.agent.parse()?,
                setup,
                config,
                tools: tools::registry(tools)?,
                approver: approver.map(|function| Arc::new(PythonApprover(Arc::new(function)))),
                credential: credential.map(Arc::new),
                receipts,
                opened: OnceCell::new(),
                session: Mutex::default(),
            })
        };
        let inner = made().map_err(|failed| error::raise(py, failed))?;
        Ok(Self(Owned::new(Arc::new(inner))))
    }

    /// Creates a session.
    fn create(&self, py: Python<'_>, id: Option<String>) -> PyResult<Operation> {
        let inner = self.inner(py)?;
        Ok(Operation::new(async move {
            let sandbox = inner.opened().await?;
            let id = id.map(|id| id.parse()).transpose()?;
            let created = sandbox
                .create_session(&inner.agent, id, inner.config.clone())
                .await?;
            *inner.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(created.clone());
            Ok(Session::new(created))
        }))
    }

    /// Opens a session that is kept in the state directory.
    fn open(&self, py: Python<'_>, id: String) -> PyResult<Operation> {
        let inner = self.inner(py)?;
        Ok(Operation::new(async move {
            let sandbox = inner.opened().await?;
            let session = sandbox.open_session(&inner.agent, &id.parse()?).await?;
            Ok(Session::new(session))
        }))
    }

    /// Ends what `create` made for a caller that did not wait for it.
    fn abandon(&self, py: Python<'_>) -> PyResult<Operation> {
        let inner = self.inner(py)?;
        Ok(Operation::new(async move {
            let created = inner
                .session
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            match created {
                Some(session) => session.destroy().await,
                None => Ok(()),
            }
        }))
    }

    /// Runs something in a sandbox of its own.
    #[pyo3(signature = (language, source, argv, options, stdin))]
    fn run_once(
        &self,
        py: Python<'_>,
        language: Option<&str>,
        source: Vec<u8>,
        argv: Vec<String>,
        options: Option<&str>,
        stdin: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let inner = self.inner(py)?;
        let request = request(language, source, argv, options, stdin)
            .map_err(|failed| error::raise(py, failed))?;
        Ok(Operation::new(async move {
            let handle = inner.start(request).await?;
            handle.wait().await.map(Report)
        }))
    }

    /// The same, with output as it comes.
    #[pyo3(signature = (language, source, argv, options, stdin))]
    fn start_once(
        &self,
        py: Python<'_>,
        language: Option<&str>,
        source: Vec<u8>,
        argv: Vec<String>,
        options: Option<&str>,
        stdin: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let inner = self.inner(py)?;
        let mut request = request(language, source, argv, options, stdin)
            .map_err(|failed| error::raise(py, failed))?;
        request.stream = true;
        Ok(Operation::new(async move {
            Ok(Execution::new(inner.start(request).await?))
        }))
    }
}

impl Sandbox {
    fn inner(&self, py: Python<'_>) -> PyResult<Arc<Inner>> {
        self.0.get(py).map(Arc::clone)
    }
}

impl Inner {
    async fn start(&self, request: Request) -> Result<brig_sandbox::ExecutionHandle, Error> {
        let sandbox = self.opened().await?;
        let config = self.config.clone();
        sandbox.start_once(&self.agent, config, request).await
    }

    async fn opened(&self) -> Result<&brig_sandbox::Sandbox, Error> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<brig_sandbox::Sandbox, Error> {
        let backend = backends::choose(&self.setup, &self.config, &self.credential).await?;
        let mut builder = brig_sandbox::Sandbox::builder(backend).tools(self.tools.clone());
        if let Some(path) = &self.setup.state_dir {
            builder = builder.state_dir(path);
        }
        if let Some(path) = &self.setup.audit {
            builder = builder.private_dir(path);
            self.receipts.open_log(path)?;
        }
        builder = builder.recorder(self.receipts.clone());
        if let Some(approver) = &self.approver {
            builder = builder.approver(approver.clone());
        }
        builder.build()
    }
}
