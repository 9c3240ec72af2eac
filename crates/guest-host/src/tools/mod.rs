//! Calls of tools: a listener on the loopback interface of the sandbox that is served here, outside. Natively
//! the guest hands the listener out; in a container it relays the connections over its stream. Code speaks
//! HTTP to it (AGT's `POST /call_tool`), so that every language can. What is allowed, the [`ToolGate`] of the
//! execution decides.

mod python;
mod server;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use brig_egress::Acceptor;
use brig_sandbox::tools::{ToolGate, ToolSet};
use brig_sandbox::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::lock;

/// What enforces the list of tools.
pub const GATE: &str = "a gate outside the sandbox that every call passes";

/// The port of AGT's tool proxy.
pub(crate) const PORT: u16 = 9100;
/// Connections of one sandbox at one time. Others wait to be accepted.
const CONNECTIONS: usize = 64;
/// The program that calls tools for every language.
pub const PROGRAM: &str = "brig-tool";
/// Where programs find the files of [`ToolServer::files`].
const FOLDER: &str = "/run/brig/tools";

/// Serves calls until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ToolServer {
    executions: Arc<Executions>,
    files: Arc<Vec<File>>,
    /// The directory of [`PROGRAM`] in the sandbox.
    programs: &'static str,
    /// Slots for relayed connections.
    relayed: Arc<Semaphore>,
    _acceptor: Option<Arc<Acceptor>>,
}

/// A path in the guest's own directory, a mode and the content.
type File = (&'static str, u32, Vec<u8>);

/// The running executions, by the token that each has in its environment. It tells which of them a call is
/// recorded for.
#[derive(Debug, Default)]
struct Executions(Mutex<HashMap<String, Arc<ToolGate>>>);

impl ToolServer {
    /// On a listener in the network namespace of the sandbox. [`PROGRAM`] is in `programs`.
    pub fn listening(tools: &ToolSet, programs: &'static str, listener: OwnedFd) -> Result<Self> {
        let mut server = Self::new(tools, programs);
        let executions = Arc::clone(&server.executions);
        let acceptor = Acceptor::serving(listener, CONNECTIONS, move |stream| {
            let executions = Arc::clone(&executions);
            async move { server::serve(executions, stream).await }
        });
        let acceptor = acceptor.map_err(|error| Error::io("listen for calls of tools", error))?;
        server._acceptor = Some(Arc::new(acceptor));
        Ok(server)
    }

    /// For connections that the guest relays. `None` without tools.
    pub fn relayed(tools: &ToolSet, programs: &'static str) -> Option<Self> {
        (!tools.is_empty()).then(|| Self::new(tools, programs))
    }

    fn new(tools: &ToolSet, programs: &'static str) -> Self {
        Self {
            executions: Arc::default(),
            files: Arc::new(vec![
                ("tools/brig_tools.py", 0o444, python::module(tools)),
                ("tools/sitecustomize.py", 0o444, python::SITE.into()),
            ]),
            programs,
            relayed: Arc::new(Semaphore::new(CONNECTIONS)),
            _acceptor: None,
        }
    }

    /// What programs call tools with.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, u32, &[u8])> {
        let files = self.files.iter();
        files.map(|(path, mode, content)| (*path, *mode, content.as_slice()))
    }

    /// Serves one relayed connection to its end.
    pub(crate) async fn serve<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Never closed, so it can't fail.
        let _slot = self.relayed.acquire().await;
        server::serve(Arc::clone(&self.executions), stream).await;
    }

    /// Lets an execution call tools until the returned value is dropped.
    pub(crate) fn open(&self, gate: &Arc<ToolGate>) -> OpenTools {
        let token = uuid::Uuid::new_v4().simple().to_string();
        lock(&self.executions.0).insert(token.clone(), Arc::clone(gate));
        OpenTools {
            executions: Arc::clone(&self.executions),
            programs: self.programs,
            token,
        }
    }
}

impl Executions {
    fn get(&self, token: &str) -> Option<Arc<ToolGate>> {
        lock(&self.0).get(token).cloned()
    }
}

/// The tools of one running execution.
#[derive(Debug)]
pub(crate) struct OpenTools {
    executions: Arc<Executions>,
    programs: &'static str,
    token: String,
}

impl OpenTools {
    /// Adds the variables by which programs find the tools.
    pub(crate) fn add_to(&self, env: &mut Vec<String>) {
        env.retain(|entry| !entry.starts_with("TOOL_PROXY_URL="));
        env.push(format!(
            "TOOL_PROXY_URL=http://127.0.0.1:{PORT}/{}",
            self.token
        ));
        let own = env
            .iter_mut()
            .find(|entry| entry.starts_with("PYTHONPATH="));
        match own {
            Some(entry) => *entry = entry.replacen('=', &format!("={FOLDER}:"), 1),
            None => env.push(format!("PYTHONPATH={FOLDER}")),
        }
        // Without it, programs have a default of their own.
        let path = env.iter_mut().find(|entry| entry.starts_with("PATH="));
        if let Some(entry) = path {
            *entry = format!("{entry}:{}", self.programs);
        }
    }
}

impl Drop for OpenTools {
    fn drop(&mut self) {
        lock(&self.executions.0).remove(&self.token);
    }
}
