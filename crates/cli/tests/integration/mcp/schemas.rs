//! What the tools publish. No argument may change the policy, the backend or the limits.

use serde_json::{Value, json};

use super::client::{Client, ERAS, Era};
use crate::common::Brig;

/// Every argument of every tool. Each was reviewed: none names a policy, an image, a backend, a mount, a host, a
/// user, a privilege, or a limit other than a shorter time. A new one has to be reviewed and added here.
const REVIEWED: [(&str, &[&str]); 6] = [
    ("end_session", &["session"]),
    ("list_files", &["depth", "path", "session"]),
    ("read_file", &["limit", "offset", "path", "session"]),
    ("run_code", &["code", "language", "session", "timeout"]),
    (
        "run_command",
        &[
            "argv", "command", "cwd", "env", "session", "stdin", "timeout",
        ],
    ),
    (
        "write_file",
        &["append", "content", "content_base64", "path", "session"],
    ),
];

fn tools(client: &mut Client) -> Vec<Value> {
    let listed = client.request("tools/list", json!({}));
    listed["result"]["tools"].as_array().unwrap().clone()
}

#[test]
fn no_argument_can_widen_the_policy() {
    let brig = Brig::new();
    for era in ERAS {
        let mut client = Client::start(&brig, era, &[]);
        let tools = tools(&mut client);
        assert_eq!(tools.len(), REVIEWED.len());
        for (tool, (name, fields)) in tools.iter().zip(REVIEWED) {
            assert_eq!(tool["name"], name);
            let schema = &tool["inputSchema"];
            assert_eq!(schema["additionalProperties"], false, "{name}");
            let own: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(own, fields, "{name}: review the new argument");
        }
        // And what is not in the schema is refused by the server.
        for field in [
            "policy", "backend", "image", "mount", "allow", "network", "memory", "user", "facts",
        ] {
            let mut arguments = json!({"code": "1"});
            arguments[field] = json!("x");
            let why = client.failed("run_code", arguments);
            assert_eq!(why["code"], "mcp.arguments", "{field}");
        }
        client.done("run_code", json!({"code": "1"}));
    }
}

/// One type for each field: some providers of models refuse the rest.
#[test]
fn schemas_are_plain() {
    fn walk(schema: &Value, place: &str) {
        for word in ["$ref", "oneOf", "anyOf", "allOf", "$defs"] {
            assert!(schema.get(word).is_none(), "{place}: {word}");
        }
        assert!(schema["type"].is_string(), "{place}: {schema}");
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            walk(field, &format!("{place}.{name}"));
        }
        if let Some(items) = schema.get("items") {
            walk(items, &format!("{place}[]"));
        }
    }
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    for tool in tools(&mut client) {
        let name = tool["name"].as_str().unwrap();
        walk(&tool["inputSchema"], name);
        let output = &tool["outputSchema"];
        walk(output, name);
        // A client that checks the result of a call that failed must find what it allows.
        assert!(output.get("required").is_none() && output.get("additionalProperties").is_none());
        for field in ["code", "message", "retryable"] {
            assert!(output["properties"][field].is_object(), "{name}: {field}");
        }
        assert!(tool["description"].as_str().unwrap().len() < 1200, "{name}");
    }
}

#[test]
fn descriptions_tell_the_limits_of_the_plan() {
    let brig = Brig::new();
    brig.write(
        "policy.yaml",
        "version: '1.0'\nname: p\nrules: []\ndefaults: {action: allow}\ncommand_denylist: [curl]\n",
    );
    std::fs::create_dir(brig.home().join("shown")).unwrap();
    let run_code = |flags: &[&str]| {
        let mut client = Client::start(&brig, Era::Modern, flags);
        tools(&mut client)
            .into_iter()
            .find(|tool| tool["name"] == "run_code")
            .unwrap()
    };
    let narrow = run_code(&[]);
    let text = narrow["description"].as_str().unwrap();
    assert!(
        text.contains("There is no network.") && text.contains("512 MiB of memory"),
        "{text}"
    );
    assert_eq!(narrow["annotations"]["openWorldHint"], false);
    assert_eq!(
        narrow["inputSchema"]["properties"]["timeout"]["maximum"],
        60.0
    );
    let flags = [
        "--allow",
        "pypi.org",
        "--memory",
        "1G",
        "--timeout",
        "10m",
        "--policy",
        "policy.yaml",
        "-v",
        "shown:/data",
    ];
    let wide = run_code(&flags);
    let text = wide["description"].as_str().unwrap();
    for part in [
        "No network except: pypi.org",
        "1 GiB of memory",
        "can't be started: curl",
        "read-only: /data",
        "at most 600 s",
    ] {
        let all = format!("{text} {}", wide["inputSchema"]);
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(wide["annotations"]["openWorldHint"], true);
}

/// What the policy lists is named; what it does not list is not, and a name that nobody registered is an error at
/// the start, not in the first call.
#[test]
fn descriptions_tell_the_tools_and_that_approvals_are_asked_for() {
    let brig = Brig::new();
    let policy = |list: &str| {
        format!(
            "version: '1.0'\nname: p\ndefaults: {{action: allow}}\ntool_allowlist: [{list}]\nrules:\n  - {{name: ask, \
             condition: {{field: tool_args.a, operator: eq, value: 2}}, action: require_approval}}\n"
        )
    };
    brig.write("policy.yaml", &policy("shout"));
    let flags = [
        "--policy",
        "policy.yaml",
        "--tool",
        "shout=tr a-z A-Z",
        "--tool",
        "hidden=true",
    ];
    let mut client = Client::start(&brig, Era::Modern, &flags);
    for tool in tools(&mut client) {
        let text = tool["description"].as_str().unwrap();
        let runs = ["run_code", "run_command"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(text.contains(": shout."), runs, "{text}");
        assert_eq!(text.contains("operator has approved"), runs, "{text}");
        assert!(!text.contains("hidden") && text.len() < 1500, "{text}");
    }
    let read = client.request("resources/read", json!({"uri": "brig://policy"}));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    let policy_of: Value = serde_json::from_str(text).unwrap();
    assert_eq!(policy_of["tools"][0]["name"], "shout");
    assert_eq!(policy_of["tools"].as_array().unwrap().len(), 1);
    let ran = client.done("run_code", json!({"code": "print(shout(a=1))"}));
    assert_eq!(ran["stdout"], "{'A': 1}\n");
    let code = "try:\n    call_tool('hidden')\nexcept Exception as error: print(error.code)";
    let ran = client.done("run_code", json!({"code": code}));
    assert_eq!(ran["stdout"], "tool.not-allowed\n");
    assert_eq!(
        ran["denied"][0]["reason"],
        "not in the policy's `tool_allowlist`"
    );
    assert_eq!(client.close(), Some(0));

    brig.write("policy.yaml", &policy("shuot"));
    let words = ["mcp"].into_iter().chain(flags);
    brig.run(words)
        .exits(125)
        .prints("")
        .complains("no tool is named `shuot`; did you mean `shout`?");
}

/// Only what is installed is offered.
#[test]
fn languages_are_those_that_are_there() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let all = tools(&mut client);
    let run_code = all.iter().find(|tool| tool["name"] == "run_code").unwrap();
    let offered = &run_code["inputSchema"]["properties"]["language"]["enum"];
    for (language, program) in [("python", "python3"), ("bash", "bash"), ("node", "node")] {
        let installed =
            ["/usr/bin", "/usr/local/bin", "/bin"].map(|place| format!("{place}/{program}"));
        let installed = installed
            .iter()
            .any(|file| std::path::Path::new(file).exists());
        let offered = offered.as_array().unwrap().contains(&json!(language));
        assert_eq!(offered, installed, "{language}: {run_code}");
    }
}
