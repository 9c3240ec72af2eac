//! A session: files and settings that persist across executions.

use std::io::Cursor;

use brig_sandbox::{Error, ExecutionId};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::execution::Execution;
use crate::operation::Operation;
use crate::owned::Owned;
use crate::report::Report;
use crate::request::request;

#[pyclass(frozen, module = "brig._native")]
#[derive(Debug)]
pub(crate) struct Session(Owned<brig_sandbox::Session>);

impl Session {
    pub(crate) fn new(session: brig_sandbox::Session) -> Self {
        Self(Owned::new(session))
    }

    fn session(&self, py: Python<'_>) -> PyResult<brig_sandbox::Session> {
        self.0.get(py).cloned()
    }
}

#[pymethods]
impl Session {
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.0.get(py)?.id().as_str())
    }

    #[getter]
    fn agent(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.0.get(py)?.agent().as_str())
    }

    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.0.get(py)?.status().name())
    }

    /// What enforces each control, as JSON.
    fn enforcement(&self, py: Python<'_>) -> PyResult<String> {
        json(py, &self.0.get(py)?.enforcement())
    }

    /// The state of an execution that is known.
    fn execution_status(&self, py: Python<'_>, id: &str) -> PyResult<Option<&'static str>> {
        let session = self.0.get(py)?;
        let id: Result<ExecutionId, Error> = id.parse();
        Ok(id
            .and_then(|id| session.execution(&id))
            .ok()
            .map(|info| info.status.name()))
    }

    /// Ends an execution. False if it does not run.
    fn cancel(&self, py: Python<'_>, id: &str) -> PyResult<bool> {
        let session = self.0.get(py)?;
        let id: Result<ExecutionId, Error> = id.parse();
        Ok(id.is_ok_and(|id| session.cancel(&id)))
    }

    #[pyo3(signature = (language, source, argv, options, stdin))]
    fn run(
        &self,
        py: Python<'_>,
        language: Option<&str>,
        source: Vec<u8>,
        argv: Vec<String>,
        options: Option<&str>,
        stdin: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let session = self.session(py)?;
        let request = request(language, source, argv, options, stdin)
            .map_err(|failed| error::raise(py, failed))?;
        Ok(Operation::new(async move {
            // Dropped with the operation: that ends the execution.
            let handle = session.start(request).await?;
            handle.wait().await.map(Report)
        }))
    }

    #[pyo3(signature = (language, source, argv, options, stdin))]
    fn start(
        &self,
        py: Python<'_>,
        language: Option<&str>,
        source: Vec<u8>,
        argv: Vec<String>,
        options: Option<&str>,
        stdin: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let session = self.session(py)?;
        let mut request = request(language, source, argv, options, stdin)
            .map_err(|failed| error::raise(py, failed))?;
        request.stream = true;
        Ok(Operation::new(async move {
            Ok(Execution::new(session.start(request).await?))
        }))
    }

    fn upload(
        &self,
        py: Python<'_>,
        path: String,
        mode: u32,
        content: Vec<u8>,
    ) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move {
            session.upload(&path, mode, Cursor::new(content)).await
        }))
    }

    fn download(&self, py: Python<'_>, path: String) -> PyResult<Operation> {
        let session = self.session(py)?;
        let read = async move {
            let mut content = Vec::new();
            session.download(&path, &mut content).await?;
            Ok(content)
        };
        Ok(Operation::with(read, |py, content| {
            Ok(PyBytes::new(py, &content).into_any().unbind())
        }))
    }

    /// A list as JSON.
    fn list_files(&self, py: Python<'_>, path: String) -> PyResult<Operation> {
        let session = self.session(py)?;
        let list = async move { session.list_files(&path).await };
        Ok(Operation::with(list, |py, files| {
            Ok(json(py, &files)?.into_pyobject(py)?.into_any().unbind())
        }))
    }

    /// Saves the files under a name; the checkpoint as JSON.
    fn save(&self, py: Python<'_>, name: String) -> PyResult<Operation> {
        let session = self.session(py)?;
        let save = async move { session.save_state(&name.parse()?).await };
        Ok(Operation::with(save, |py, saved| {
            Ok(json(py, &saved)?.into_pyobject(py)?.into_any().unbind())
        }))
    }

    fn restore(&self, py: Python<'_>, name: String) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move {
            session.restore_state(&name.parse()?).await
        }))
    }

    /// A list as JSON.
    fn checkpoints(&self, py: Python<'_>) -> PyResult<Operation> {
        let session = self.session(py)?;
        let list = async move { session.checkpoints() };
        Ok(Operation::with(list, |py, list| {
            Ok(json(py, &list)?.into_pyobject(py)?.into_any().unbind())
        }))
    }

    fn delete_checkpoint(&self, py: Python<'_>, name: String) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move {
            session.delete_checkpoint(&name.parse()?).await
        }))
    }

    fn fork(&self, py: Python<'_>, name: String, id: Option<String>) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move {
            let id = id.map(|id| id.parse()).transpose()?;
            let forked = session.fork(&name.parse()?, id).await?;
            Ok(Session::new(forked))
        }))
    }

    /// Ends the instance; the session and its files stay.
    fn close(&self, py: Python<'_>) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move { session.close().await }))
    }

    fn destroy(&self, py: Python<'_>) -> PyResult<Operation> {
        let session = self.session(py)?;
        Ok(Operation::new(async move { session.destroy().await }))
    }
}

fn json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|failed| error::raise(py, error::invalid("answer", failed)))
}
