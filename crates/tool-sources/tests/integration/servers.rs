//! MCP servers that behave.

use brig_tool_sources::{McpServer, SourceError};
use brig_tools::{ToolError, ToolName};
use serde_json::json;

use crate::common::{Notices, arguments, connect, ends, runs, spec, tool};

#[tokio::test]
async fn tools_are_listed_and_called() {
    let server = connect("good").await.expect("connected");
    let names: Vec<&str> = server
        .tools()
        .map(|tool| tool.spec().name.as_str())
        .collect();
    assert_eq!(names, ["echo", "fail", "pid", "large", "slow"]);
    let echo = tool(&server, "echo");
    assert_eq!(echo.spec().description, "First. [31m\nSecond.");
    assert_eq!(echo.spec().source, "MCP server test");
    let result = echo.call(arguments(json!({"a": [1, "é"]}))).await;
    assert_eq!(result, Ok(json!("{\"a\": [1, \"\\u00e9\"]}")));
    let result = tool(&server, "fail").call(arguments(json!({}))).await;
    assert_eq!(result, Err(ToolError::Failed("bad [31m input".into())));
    let result = tool(&server, "large").call(arguments(json!({}))).await;
    assert!(
        matches!(result, Err(ToolError::ResultTooLarge(_))),
        "{result:?}"
    );
    // It goes on after that.
    assert!(echo.call(arguments(json!({}))).await.is_ok());
    server.close().await;
    assert_eq!(
        echo.call(arguments(json!({}))).await,
        Err(ToolError::Unavailable)
    );
}

#[tokio::test]
async fn the_message_of_a_server_has_no_secret_of_it() {
    let mut given = spec("good");
    if let brig_tool_sources::Endpoint::Program(program) = &mut given.endpoint {
        program.set("TOKEN", "s3cret-0123");
    }
    let server = McpServer::connect(given, Notices::default().notify()).await;
    let server = server.expect("connected");
    for how in ["error", "result"] {
        let fail = tool(&server, "fail");
        let result = fail.call(arguments(json!({"tell": how}))).await;
        let expected = ToolError::Failed("refused: [secret]".into());
        assert_eq!(result, Err(expected), "{how}");
    }
}

#[tokio::test]
async fn some_tools_are_chosen_and_renamed() {
    let name = |name: &str| ToolName::new(name).expect("a name");
    let mut chosen = spec("good");
    chosen.tools = vec![("echo".into(), name("repeat")), ("pid".into(), name("pid"))];
    let server = McpServer::connect(chosen, Notices::default().notify()).await;
    let server = server.expect("connected");
    let names: Vec<&str> = server
        .tools()
        .map(|tool| tool.spec().name.as_str())
        .collect();
    assert_eq!(names, ["repeat", "pid"]);
    let result = tool(&server, "repeat")
        .call(arguments(json!({"x": 1})))
        .await;
    assert_eq!(result, Ok(json!("{\"x\": 1}")));
    let mut missing = spec("good");
    missing.tools = vec![("ecko".into(), name("ecko"))];
    let error = McpServer::connect(missing, Notices::default().notify()).await;
    let error = error.expect_err("no such tool").to_string();
    assert!(
        error.contains("no tool `ecko`") && error.contains("echo"),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_is_left_of_a_server_that_is_closed_or_dropped() {
    for close in [true, false] {
        let server = connect("good").await.expect("connected");
        let result = tool(&server, "pid")
            .call(arguments(json!({})))
            .await
            .expect("ids");
        let id = |name: &str| u32::try_from(result[name].as_u64().expect("an id")).expect("an id");
        let (own, left) = (id("own"), id("left"));
        assert!(runs(own) && runs(left), "control");
        if close {
            server.close().await;
            assert!(!runs(own) && !runs(left));
        } else {
            drop(server);
            assert!(ends(own).await && ends(left).await);
        }
    }
}

#[tokio::test]
async fn a_program_that_is_no_server_is_an_error() {
    let mut other = spec("good");
    other.endpoint = brig_tool_sources::Endpoint::Program(crate::common::program(&["true"]));
    let error = McpServer::connect(other, Notices::default().notify()).await;
    assert!(
        matches!(error, Err(SourceError::Server { .. })),
        "{error:?}"
    );
}
