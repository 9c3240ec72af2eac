//! Tools in the user's configuration and in agent files.

use std::path::Path;
use std::time::Duration;

use brig_config::{AgentFile, ConfiguredEndpoint, UserConfig};
use serde_json::json;

const TOOLS: &str = "\
tools:
  fetch:
    command: [./fetch.sh, --fast]
    description: Fetches
    input_schema: {type: object, properties: {n: {type: integer, maximum: 10}}}
    timeout: 30s
    env: {MODE: x}
    secrets: [TOKEN]
mcp_servers:
  github:
    command: [npx, server]
    tools: [list_issues, create_issue=open_issue]
    start_timeout: 2m
  search:
    url: https://example.com/mcp
    headers: ['Authorization: Bearer $TOKEN']
";

#[test]
fn commands_and_servers_are_read() {
    let (config, warnings) = UserConfig::parse("/home/me/config.yaml", TOOLS.as_bytes()).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let sources = config.tools();
    assert_eq!(sources.directory, Path::new("/home/me"));
    let fetch = &sources.tools["fetch"];
    assert_eq!(fetch.command, ["./fetch.sh", "--fast"]);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 10}}});
    assert_eq!(fetch.input_schema, Some(schema));
    assert_eq!(fetch.timeout, Some(Duration::from_secs(30)));
    assert_eq!(fetch.env, [("MODE".to_owned(), "x".to_owned())]);
    assert_eq!(fetch.secrets, ["TOKEN"]);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let github = &sources.servers["github"];
    assert_eq!(
        github.tools,
        [
            pair("list_issues", "list_issues"),
            pair("create_issue", "open_issue")
        ]
    );
    assert_eq!(github.start_timeout, Some(Duration::from_secs(120)));
    let headers = vec![pair("Authorization", "Bearer $TOKEN")];
    let url = ConfiguredEndpoint::Url("https://example.com/mcp".into(), headers);
    assert_eq!(sources.servers["search"].endpoint, url);
    // The same in an agent file, where they are part of `runtime`.
    let runtime: String = TOOLS.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("name: a\ncommand: [x]\nruntime:\n{runtime}");
    let (agent, _) = AgentFile::parse("/a/agent.yaml", text.as_bytes()).unwrap();
    assert_eq!(agent.tools.tools, sources.tools);
    assert_eq!(agent.tools.servers, sources.servers);
    assert_eq!(agent.tools.directory, Path::new("/a"));
}

#[test]
fn what_is_wrong_is_an_error() {
    for bad in [
        "tools: {fetch: {}}\n",
        "tools: {fetch: {command: []}}\n",
        "tools: {fetch: {command: ['']}}\n",
        "tools: {'f\u{435}tch': {command: [x]}}\n",
        "tools: {fetch: {command: [x], input_schema: 3}}\n",
        "tools: {fetch: {command: [x], timeout: soon}}\n",
        "tools: {fetch: {command: [x], secrets: ['a b']}}\n",
        "mcp_servers: {s: {}}\n",
        "mcp_servers: {s: {command: [x], url: 'https://x'}}\n",
        "mcp_servers: {s: {command: [x], headers: ['A: b']}}\n",
        "mcp_servers: {s: {url: 'https://x', headers: [x]}}\n",
        "mcp_servers: {s: {command: [x], tools: ['a=b c']}}\n",
        "mcp_servers: {'s.t': {command: [x]}}\n",
    ] {
        let error = UserConfig::parse("config.yaml", bad.as_bytes());
        assert!(error.is_err(), "{bad}");
    }
}
