//! MCP servers that others wrote, as `scripts/lib/mcp-servers` has installed them.

use std::path::PathBuf;

use brig_tool_sources::{Endpoint, McpServer, Program, ServerSpec};
use serde_json::json;

use crate::common::{LONG, Notices, arguments, program, tool};

/// The directory with the servers. Without it, the test is skipped.
fn installed(test: &str, what: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("BRIG_TEST_MCP_SERVERS").map(PathBuf::from);
    let found = directory
        .map(|directory| directory.join(what))
        .filter(|path| path.exists());
    if found.is_none() {
        brig_testing::skip(test, "the server is not installed: scripts/lib/mcp-servers");
    }
    found
}

async fn connect(program: Program) -> McpServer {
    let spec = ServerSpec {
        name: "foreign".into(),
        endpoint: Endpoint::Program(program),
        tools: Vec::new(),
        timeout: Some(LONG),
        start_timeout: Some(LONG),
    };
    let connected = McpServer::connect(spec, Notices::default().notify()).await;
    connected.expect("connected")
}

#[tokio::test]
async fn a_server_from_pypi_tells_the_time() {
    let test = "foreign::a_server_from_pypi_tells_the_time";
    let Some(packages) = installed(test, "pypi") else {
        return;
    };
    let mut python = program(&[
        "/usr/bin/python3",
        "-m",
        "mcp_server_time",
        "--local-timezone",
        "UTC",
    ]);
    python.set("PYTHONPATH", packages);
    let server = connect(python).await;
    let now = tool(&server, "get_current_time");
    assert!(
        now.spec().input_schema["properties"]
            .get("timezone")
            .is_some()
    );
    let result = now
        .call(arguments(json!({"timezone": "UTC"})))
        .await
        .expect("the time");
    assert!(result.to_string().contains("UTC"), "{result}");
    let result = now.call(arguments(json!({"timezone": "Nowhere"}))).await;
    assert!(result.is_err(), "{result:?}");
    server.close().await;
}

#[tokio::test]
async fn a_server_from_npm_remembers() {
    let test = "foreign::a_server_from_npm_remembers";
    let path = "npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js";
    let Some(index) = installed(test, path) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let mut node = program(&["node", index.to_str().expect("UTF-8")]);
    node.set("MEMORY_FILE_PATH", directory.path().join("memory.json"));
    let server = connect(node).await;
    let entity = json!({"entities": [{"name": "Brig", "entityType": "ship", "observations": ["two masts"]}]});
    let created = tool(&server, "create_entities")
        .call(arguments(entity))
        .await;
    assert!(created.expect("created").to_string().contains("two masts"));
    let graph = tool(&server, "read_graph").call(arguments(json!({}))).await;
    assert!(graph.expect("a graph").to_string().contains("two masts"));
    server.close().await;
}
