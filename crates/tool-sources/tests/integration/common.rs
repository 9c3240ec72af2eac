//! What the tests share.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brig_linux::process_stat::ProcessStat;
use brig_tool_sources::{Endpoint, McpServer, Notify, Program, ServerSpec, SourceError};
use brig_tools::{Arguments, Tool};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, even on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A directory with an executable script.
pub(crate) fn script(name: &str, text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("mode");
    (directory, path)
}

pub(crate) fn program(words: &[&str]) -> Program {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Program::find(&words, Path::new("/")).expect("a program")
}

/// What the operator was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    pub(crate) fn notify(&self) -> Notify {
        let told = self.0.clone();
        Arc::new(move |text: &str| told.lock().expect("told").push(text.to_owned()))
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("told").join("\n")
    }
}

pub(crate) fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(arguments) => arguments,
        _ => panic!("not an object: {value}"),
    }
}

/// The server of these tests, in one of its modes.
pub(crate) fn spec(mode: &str) -> ServerSpec {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/servers/server.py");
    let file = file.to_str().expect("UTF-8");
    ServerSpec {
        name: "test".into(),
        endpoint: Endpoint::Program(program(&["python3", "-S", file, mode])),
        tools: Vec::new(),
        timeout: None,
        start_timeout: Some(LONG),
    }
}

pub(crate) async fn connect(mode: &str) -> Result<McpServer, SourceError> {
    McpServer::connect(spec(mode), Notices::default().notify()).await
}

pub(crate) fn tool(server: &McpServer, name: &str) -> Arc<dyn Tool> {
    let mut tools = server.tools();
    let tool = tools.find(|tool| tool.spec().name.as_str() == name);
    tool.unwrap_or_else(|| panic!("no tool {name}")).clone()
}

pub(crate) fn runs(pid: u32) -> bool {
    ProcessStat::of(pid).is_ok_and(|stat| !stat.has_ended())
}

/// Waits for the end of a process.
pub(crate) async fn ends(pid: u32) -> bool {
    let deadline = Instant::now() + LONG;
    while runs(pid) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    !runs(pid)
}

/// Waits for a file with a number in it.
pub(crate) async fn number_in(path: &Path) -> u32 {
    let deadline = Instant::now() + LONG;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(number) = text.strip_suffix('\n') {
            return number.parse().expect("a number");
        }
        assert!(Instant::now() < deadline, "no {}", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
