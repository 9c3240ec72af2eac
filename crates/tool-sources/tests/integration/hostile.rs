//! MCP servers that do not behave. Every mode of the server is met, and nothing waits for ever.

use std::time::Duration;

use brig_tool_sources::{McpServer, SourceError};
use brig_tools::{ToolError, ToolName};
use serde_json::json;

use crate::common::{LONG, Notices, arguments, connect, spec, tool};

#[tokio::test]
async fn a_server_that_hangs_at_its_start_is_given_up() {
    let mut hangs = spec("hangs");
    hangs.start_timeout = Some(Duration::from_secs(2));
    let error = McpServer::connect(hangs, Notices::default().notify()).await;
    assert!(
        matches!(error, Err(SourceError::ServerTimeout { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_server_that_dies_at_its_start_has_its_last_words() {
    let error = connect("dies").await.expect_err("it died").to_string();
    assert!(
        error.contains("MCP server `test`") && error.contains("no such file: settings.json"),
        "{error}"
    );
}

#[tokio::test]
async fn lists_that_can_not_be_trusted_are_refused() {
    for (mode, expected) in [
        ("confusable", "not a valid tool name"),
        ("twice-listed", "lists the tool `a` twice"),
        ("too-many", "more than 512 tools"),
        ("endless-list", "does not end"),
        ("no-object", "its `type` is not `object`"),
        ("large-schema", "larger than"),
    ] {
        let error = connect(mode).await.expect_err(mode).to_string();
        assert!(error.contains(expected), "{mode}: {error}");
    }
    // What is chosen is not in danger.
    let mut chosen = spec("confusable");
    let name = ToolName::new("fetch").expect("a name");
    chosen.tools = vec![("fetch".into(), name)];
    let server = McpServer::connect(chosen, Notices::default().notify()).await;
    assert_eq!(server.expect("connected").tools().count(), 1);
}

#[tokio::test]
async fn a_call_that_hangs_ends_in_time() {
    let mut hangs = spec("hangs-in-call");
    hangs.timeout = Some(Duration::from_secs(1));
    let server = McpServer::connect(hangs, Notices::default().notify())
        .await
        .expect("connected");
    let result = tool(&server, "echo").call(arguments(json!({}))).await;
    assert_eq!(result, Err(ToolError::TimedOut(Duration::from_secs(1))));
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_unavailable_from_then_on() {
    let told = Notices::default();
    let server = McpServer::connect(spec("dies-in-call"), told.notify())
        .await
        .expect("connected");
    for _ in 0..2 {
        let result =
            tokio::time::timeout(LONG, tool(&server, "echo").call(arguments(json!({})))).await;
        assert_eq!(result.expect("in time"), Err(ToolError::Unavailable));
    }
    assert!(told.text().contains("the last words"), "{}", told.text());
}

#[tokio::test]
async fn the_first_of_two_answers_counts() {
    let server = connect("answers-twice").await.expect("connected");
    for _ in 0..3 {
        let result = tool(&server, "echo").call(arguments(json!({}))).await;
        assert_eq!(result, Ok(json!("first")));
    }
}

#[tokio::test]
async fn what_is_no_message_is_ignored() {
    let server = connect("garbage").await.expect("connected");
    let result = tool(&server, "echo").call(arguments(json!({}))).await;
    assert_eq!(result, Ok(json!("after it")));
}

/// Neither messages without end nor one message without end: both are cut off.
#[tokio::test]
async fn a_flood_ends_the_server() {
    for mode in ["floods", "one-long-line"] {
        let server = connect(mode).await.expect("connected");
        let result =
            tokio::time::timeout(LONG, tool(&server, "echo").call(arguments(json!({})))).await;
        assert_eq!(result.expect(mode), Err(ToolError::Unavailable), "{mode}");
    }
}

/// The gate compares them; here they are only passed on.
#[tokio::test]
async fn a_promised_schema_is_passed_on_with_the_result() {
    let server = connect("lies").await.expect("connected");
    let liar = tool(&server, "a");
    assert_eq!(
        liar.spec().output_schema,
        Some(json!({"type": "object", "required": ["n"]}))
    );
    assert_eq!(
        liar.call(arguments(json!({}))).await,
        Ok(json!({"other": 1}))
    );
}

/// A server can't ask for a model, or for directories of the caller.
#[tokio::test]
async fn a_server_that_asks_gets_nothing() {
    let server = connect("asks").await.expect("connected");
    let result = tool(&server, "echo")
        .call(arguments(json!({})))
        .await
        .expect("a result");
    assert_eq!(result, json!("[\"error\", {\"roots\": []}]"));
}
