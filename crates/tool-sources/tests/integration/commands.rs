//! Commands of the host as tools.

use std::time::Duration;

use brig_tool_sources::{CommandTool, Program};
use brig_tools::{Tool, ToolError, ToolName};
use serde_json::{Value, json};

use crate::common::{LONG, Notices, arguments, ends, number_in, program, runs, script};

fn tool(program: Program, told: &Notices) -> CommandTool {
    let name = ToolName::new("tested").expect("a name");
    CommandTool::new(name, program, told.notify())
}

async fn call(text: &str, value: Value) -> (Result<Value, ToolError>, String) {
    let (_directory, path) = script("tool", text);
    let told = Notices::default();
    let tool = tool(program(&[path.to_str().expect("UTF-8")]), &told);
    let result = tokio::time::timeout(LONG, tool.call(arguments(value))).await;
    (result.expect("in time"), told.text())
}

#[tokio::test]
async fn arguments_are_json_on_stdin_and_the_result_is_json_or_text() {
    let python = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps({'sum': sum(json.load(sys.stdin)['of'])}))\n";
    let (result, _) = call(python, json!({"of": [1, 2, 39]})).await;
    assert_eq!(result.expect("a result"), json!({"sum": 42}));
    let (result, _) = call("#!/bin/sh\necho 'two words'\necho more\n", json!({})).await;
    assert_eq!(result.expect("a result"), json!("two words\nmore"));
    let (result, _) = call("#!/bin/sh\ncat\n", json!({"a": "é\u{0}\n"})).await;
    assert_eq!(result.expect("a result"), json!({"a": "é\u{0}\n"}));
    let (result, _) = call("#!/bin/sh\n", json!({})).await;
    assert_eq!(result.expect("a result"), json!(""));
}

/// More than a pipe holds, to a tool that reads nothing, reads all, or reads after it has written.
#[tokio::test]
async fn large_arguments_and_results_do_not_block() {
    let large = "x".repeat(1 << 20);
    let (result, _) = call("#!/bin/sh\necho done\n", json!({"a": large})).await;
    assert_eq!(result.expect("a result"), json!("done"));
    let (result, _) = call("#!/bin/sh\ncat\n", json!({"a": large})).await;
    assert_eq!(result.expect("a result"), json!({"a": large}));
    let both = "#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' y\nhead -c 300000 /dev/zero >&2\ncat >/dev/null\n";
    let (result, _) = call(both, json!({"a": large})).await;
    assert_eq!(result.expect("a result"), json!("y".repeat(300_000)));
}

#[tokio::test]
async fn what_fails_tells_the_code_little_and_the_operator_more() {
    let text = "#!/bin/sh\necho 'no such paper\x1b[31m'\necho token=s3cret /home/me >&2\nexit 3\n";
    let (result, told) = call(text, json!({})).await;
    let error = result.expect_err("it failed");
    assert_eq!(
        error,
        ToolError::Failed("the tool failed with exit code 3: no such paper [31m".into())
    );
    assert!(
        told.contains("exit code 3") && told.contains("s3cret"),
        "{told}"
    );
    let (result, told) = call("#!/bin/sh\nkill -9 $$\n", json!({})).await;
    let error = result.expect_err("it was killed").to_string();
    assert_eq!(error, "the tool failed with exit code 137", "{told}");
    let (result, _) = call("#!/bin/sh\nprintf '\\377'\n", json!({})).await;
    assert!(
        matches!(result, Err(ToolError::InvalidResult(_))),
        "{result:?}"
    );
    let (result, told) = call("#!/nonexistent/interpreter\n", json!({})).await;
    assert_eq!(result, Err(ToolError::Unavailable));
    assert!(told.contains("did not start"), "{told}");
}

#[tokio::test]
async fn the_message_of_a_failed_command_has_no_secret_of_it() {
    let (_directory, path) = script(
        "tool",
        "#!/bin/sh\necho \"refused: $TOKEN, $MODE\"\nexit 1\n",
    );
    let mut given = program(&[path.to_str().expect("UTF-8")]);
    given.set("TOKEN", "s3cret-0123");
    given.set("MODE", "on");
    let result = tool(given, &Notices::default())
        .call(arguments(json!({})))
        .await;
    let error = result.expect_err("it failed").to_string();
    assert_eq!(
        error,
        "the tool failed with exit code 1: refused: [secret], on"
    );
}

#[tokio::test]
async fn a_result_without_end_is_cut_off_and_its_tool_ended() {
    let (result, _) = call("#!/bin/sh\nyes & exec yes\n", json!({})).await;
    assert!(
        matches!(result, Err(ToolError::ResultTooLarge(_))),
        "{result:?}"
    );
}

fn is_written(path: &std::path::Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
}

/// Writes its id and that of a process in another session, then goes on for ever.
fn endless(directory: &std::path::Path) -> String {
    let place = directory.display();
    format!(
        "#!/bin/sh\nsetsid sh -c 'echo $$ >{place}/left; sleep 600' >/dev/null 2>&1 &\necho $$ >{place}/own\nsleep 600\n"
    )
}

#[tokio::test]
async fn nothing_is_left_of_a_call_that_is_over() {
    let ids = tempfile::tempdir().expect("a directory");
    let (_directory, path) = script("tool", &endless(ids.path()));
    let told = Notices::default();
    let words = [path.to_str().expect("UTF-8")];
    // Dropped.
    let dropped = tool(program(&words), &told);
    let call = tokio::spawn(async move { dropped.call(arguments(json!({}))).await });
    let (own, left) = (
        number_in(&ids.path().join("own")).await,
        number_in(&ids.path().join("left")).await,
    );
    assert!(runs(own) && runs(left), "control");
    call.abort();
    assert!(ends(own).await && ends(left).await);
    // Timed out, and not before both of them run.
    let mut limit = Duration::from_secs(2);
    loop {
        for name in ["own", "left"] {
            let _ = std::fs::remove_file(ids.path().join(name));
        }
        let slow = tool(program(&words), &told).timeout(limit);
        let result = slow.call(arguments(json!({}))).await;
        assert_eq!(result, Err(ToolError::TimedOut(limit)));
        if is_written(&ids.path().join("own")) && is_written(&ids.path().join("left")) {
            break;
        }
        assert!(limit < LONG, "it never starts");
        limit *= 2;
    }
    assert!(ends(number_in(&ids.path().join("own")).await).await);
    assert!(ends(number_in(&ids.path().join("left")).await).await);
    // Ended by itself, with a process left behind that holds its streams.
    let text = format!(
        "#!/bin/sh\nsetsid sh -c 'echo $$ >{0}/held; sleep 600' &\nwhile ! [ -s {0}/held ]; do sleep 0.01; done\necho done\n",
        ids.path().display()
    );
    let (_directory, path) = script("tool", &text);
    let leaves = tool(program(&[path.to_str().expect("UTF-8")]), &told);
    let result = tokio::time::timeout(LONG, leaves.call(arguments(json!({})))).await;
    assert_eq!(result.expect("in time"), Ok(json!("done")));
    assert!(!runs(number_in(&ids.path().join("held")).await));
}

/// Secrets of the caller are not for tools, unless they are named.
#[tokio::test]
async fn the_environment_is_chosen() {
    // Cargo sets one, scripts/test the other.
    let named = ["CARGO_MANIFEST_DIR", "BRIG_TEST_SKIPS"];
    let mut named = named
        .into_iter()
        .filter(|name| std::env::var_os(name).is_some());
    let named = named.next().expect("control: a variable of this process");
    let told = Notices::default();
    for passed_on in [true, false] {
        let mut printenv = program(&["env"]);
        printenv.set("GIVEN", "value");
        if passed_on {
            printenv.pass_on(named).expect("it is set");
        }
        let result = tool(printenv, &told).call(arguments(json!({}))).await;
        let Ok(Value::String(text)) = result else {
            panic!("{result:?}");
        };
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect();
        assert!(
            text.contains("GIVEN=value") && names.contains(&"PATH"),
            "{names:?}"
        );
        assert_eq!(names.contains(&named), passed_on, "{names:?}");
    }
    assert!(program(&["env"]).pass_on("BRIG_NO_SUCH_VARIABLE").is_err());
}
