//! MCP servers with a URL, on loopback.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brig_tool_sources::{Endpoint, McpServer, ServerSpec, SourceError};
use brig_tools::ToolError;
use serde_json::json;

use crate::common::{LONG, Notices, arguments, tool};

struct Server(Child, u16);

impl Server {
    fn start(mode: &str) -> Self {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/servers/streamable.py");
        let child = Command::new("python3")
            .arg(file)
            .arg(mode)
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("python3");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a port");
        Self(child, line.trim().parse().expect("a port"))
    }

    async fn connect(&self, token: &str) -> Result<McpServer, SourceError> {
        let spec = ServerSpec {
            name: "test".into(),
            endpoint: Endpoint::Url {
                url: format!("http://127.0.0.1:{}/mcp", self.1),
                headers: vec![("Authorization".into(), format!("Bearer {token}"))],
            },
            tools: Vec::new(),
            timeout: Some(Duration::from_secs(60)),
            start_timeout: Some(LONG),
        };
        McpServer::connect(spec, Notices::default().notify()).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn answers_are_json_or_events_with_or_without_a_session() {
    for mode in ["json", "events", "no-session"] {
        let server = Server::start(mode);
        let connected = server.connect("right").await.expect(mode);
        let result = tool(&connected, "echo")
            .call(arguments(json!({"a": 1})))
            .await;
        assert_eq!(result, Ok(json!("{\"a\": 1}")), "{mode}");
        connected.close().await;
    }
}

#[tokio::test]
async fn a_wrong_token_is_an_error_that_does_not_show_it() {
    let server = Server::start("json");
    let error = server
        .connect("wr0ng")
        .await
        .expect_err("refused")
        .to_string();
    assert!(error.contains("401") && !error.contains("wr0ng"), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    for mode in ["floods", "floods-events", "redirects"] {
        let server = Server::start(mode);
        let connected = server.connect("right").await.expect(mode);
        let result =
            tokio::time::timeout(LONG, tool(&connected, "echo").call(arguments(json!({})))).await;
        let error = result.expect(mode).expect_err(mode);
        let expected = [
            ToolError::Unavailable,
            ToolError::TimedOut(Duration::from_secs(60)),
        ];
        assert!(expected.contains(&error), "{mode}: {error:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let server = Server::start("json");
    let port = server.1;
    drop(server);
    let gone = Server(Command::new("true").spawn().expect("true"), port);
    let error = gone.connect("right").await.expect_err("gone").to_string();
    assert!(error.contains("does not answer"), "{error}");
}
