//! Output and names of a hostile program reach the client only as harmless text, and not without bounds.

use serde_json::{Value, json};

use super::client::{Client, Era};
use crate::common::Brig;

/// Nothing in it can drive a terminal or hide from a reader.
#[track_caller]
fn is_harmless(value: &Value) {
    match value {
        Value::String(text) => {
            let harmful = |c: char| brig_audit::escape::is_harmful(c) && !matches!(c, '\n' | '\t');
            assert!(!text.chars().any(harmful), "{text:?}");
        }
        Value::Array(all) => all.iter().for_each(is_harmless),
        Value::Object(all) => all.values().for_each(is_harmless),
        _ => {}
    }
}

#[test]
fn output_is_escaped_and_bounded() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let code = "import os\nbad = '\\x1b]0;x\\x07\\u202e\\u200b\\x9b31m\\U000e0041\\r'.encode() + b'\\xff\\n'\n\
                os.write(1, bad)\nos.write(2, bad)\nraise SystemExit('\\x1b[2J')";
    let result = client.call("run_code", json!({"code": code}));
    is_harmless(&result);
    let stdout = result["structuredContent"]["stdout"].as_str().unwrap();
    assert!(
        stdout.starts_with("␛]0;x␇\\u{202e}") && stdout.ends_with("\\xff\n"),
        "{stdout}"
    );
    // A line of protocol in the output stays output.
    let line = r#"{"jsonrpc":"2.0","id":999,"result":{}}"#;
    let ran = client.done("run_code", json!({"code": format!("print('''{line}''')")}));
    assert_eq!(ran["stdout"], format!("{line}\n"));
    // Far more than is kept anywhere.
    let result = client.call(
        "run_command",
        json!({"command": "head -c 300000000 /dev/zero", "timeout": 50}),
    );
    assert_eq!(result["structuredContent"]["stdout_bytes"], 300_000_000);
    assert!(result.to_string().len() < 500_000);
}

#[test]
fn names_of_files_are_escaped_and_bounded() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let code = "import os\n\
                for name in (b'\\x1b[31m', b'a\\nb', b'\\xff', '\\u202egnp.exe'.encode(), b'-rf', b'%2e', b\"'\"):\n\
                \x20   open(name, 'w').write('x')\n\
                os.makedirs(b'dir\\x07/sub')\n";
    client.done("run_code", json!({"code": code, "session": "s"}));
    let result = client.call("list_files", json!({"session": "s", "depth": 4}));
    is_harmless(&result);
    let entries = result["structuredContent"]["entries"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(entries.len(), 9, "{entries:#?}");
    let escaped = entries
        .iter()
        .filter(|entry| entry["escaped"] == true)
        .count();
    assert_eq!(escaped, 6);
    // What is not marked can be read by the name that was given.
    for entry in entries.iter().filter(|entry| entry["escaped"] != true) {
        let read = client.done("read_file", json!({"session": "s", "path": entry["path"]}));
        assert_eq!(read["content"], "x");
    }
    is_harmless(&client.request("resources/list", json!({})));
    let why = client.failed(
        "read_file",
        json!({"session": "s", "path": "no\u{202e}\u{1b}"}),
    );
    is_harmless(&why);

    let many = "for i in range(3000): open(f'f{i}', 'w')";
    client.done("run_code", json!({"code": many, "session": "s"}));
    let listed = client.done("list_files", json!({"session": "s"}));
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1000);
    assert_eq!(listed["truncated"], true);
}

#[test]
fn content_of_files_is_exact_or_marked() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let code = "open('t', 'wb').write(b'a\\x1b[2J\\r\\n'); open('b', 'wb').write(b'\\xff\\x00'); \
                open('big', 'wb').truncate(100 << 20)";
    client.done("run_code", json!({"code": code, "session": "s"}));
    let mut read = |path: &str| client.done("read_file", json!({"session": "s", "path": path}));
    let text = read("t");
    is_harmless(&text);
    assert_eq!(
        (&text["escaped"], &text["content_base64"]),
        (&json!(true), &json!("YRtbMkoNCg=="))
    );
    let bytes = read("b");
    assert_eq!(
        (bytes.get("content"), &bytes["content_base64"]),
        (None, &json!("/wA="))
    );
    let big = read("big");
    assert_eq!(
        (&big["size"], &big["bytes"], &big["truncated"]),
        (&json!(100 << 20), &json!(65536), &json!(true))
    );
}
