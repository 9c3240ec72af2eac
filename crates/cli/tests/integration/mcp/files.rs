//! Files and resources.

use serde_json::{Value, json};

use super::client::{Client, ERAS, Era};
use crate::common::Brig;

#[test]
fn files_are_written_listed_and_read() {
    for era in ERAS {
        let brig = Brig::new();
        let mut client = Client::start(&brig, era, &[]);
        let file = |more: Value| {
            let mut arguments = json!({"session": "s", "path": "dir/a.txt"});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            arguments
        };
        let written = client.done("write_file", file(json!({"content": "héllo\n"})));
        assert_eq!(written, json!({"path": "dir/a.txt", "bytes": 7}));
        client.done(
            "write_file",
            file(json!({"content_base64": "d29ybGQK", "append": true})),
        );
        let read = client.done("read_file", file(json!({})));
        assert_eq!(
            (&read["content"], &read["truncated"]),
            (&json!("héllo\nworld\n"), &json!(false))
        );
        let part = client.done("read_file", file(json!({"offset": 7, "limit": 3})));
        assert_eq!(
            (&part["content"], &part["size"]),
            (&json!("wor"), &json!(13))
        );
        assert_eq!(part["truncated"], true);
        // Code sees the same file, by its absolute path.
        let ran = client.done(
            "run_command",
            json!({"session": "s", "command": "cat /workspace/dir/a.txt"}),
        );
        assert_eq!(ran["stdout"], "héllo\nworld\n");
        let listed = client.done("list_files", json!({"session": "s"}));
        assert_eq!(listed["entries"][0]["path"], "dir");
        let listed = client.done("list_files", json!({"session": "s", "depth": 3}));
        assert_eq!(
            listed["entries"][1],
            json!({"path": "dir/a.txt", "kind": "file", "size": 13})
        );
        for (tool, wrong) in [
            ("write_file", file(json!({}))),
            (
                "write_file",
                file(json!({"content": "a", "content_base64": "YQ=="})),
            ),
            ("write_file", file(json!({"content_base64": "***"}))),
            ("read_file", file(json!({"limit": -1}))),
        ] {
            assert_eq!(client.failed(tool, wrong)["code"], "mcp.arguments");
        }
    }
}

#[test]
fn nothing_outside_of_the_workspace_is_reached() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    client.done(
        "run_command",
        json!({"session": "s", "command": "ln -s /etc/passwd link; ln -s / root"}),
    );
    for path in ["/etc/passwd", "../etc/passwd", "link", "root/etc/passwd"] {
        let why = client.failed("read_file", json!({"session": "s", "path": path}));
        assert_eq!(why["code"], "file.failed", "{path}");
        let write = json!({"session": "s", "path": path, "content": "x"});
        assert_eq!(
            client.failed("write_file", write)["code"],
            "file.failed",
            "{path}"
        );
    }
    // The positive control: a program in the sandbox follows its own link.
    let ran = client.done(
        "run_command",
        json!({"session": "s", "command": "cat link"}),
    );
    assert_eq!(ran["exit_code"], 0);
}

#[test]
fn resources_tell_the_policy_and_the_files_of_sessions() {
    for era in ERAS {
        let brig = Brig::new();
        brig.write(
            "policy.yaml",
            "version: '1.0'\nname: known\nrules: []\ndefaults: {action: allow}\n",
        );
        let flags = ["--policy", "policy.yaml", "--memory", "300M"];
        let mut client = Client::start(&brig, era, &flags);
        client.done(
            "write_file",
            json!({"session": "s", "path": "a b.txt", "content": "text"}),
        );
        let listed = client.request("resources/list", json!({}));
        let all = listed["result"]["resources"].as_array().unwrap().iter();
        let uris: Vec<&str> = all.map(|one| one["uri"].as_str().unwrap()).collect();
        assert_eq!(
            uris,
            [
                "brig://policy",
                "brig://doctor",
                "brig://session/s/a%20b.txt"
            ]
        );
        let mut read = |uri: &str| client.request("resources/read", json!({"uri": uri}));
        let text = |answer: &Value| {
            answer["result"]["contents"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(text(&read("brig://session/s/a%20b.txt")), "text");
        let policy: Value = serde_json::from_str(&text(&read("brig://policy"))).unwrap();
        assert!(
            policy["policies"]["documents"][0]
                .as_str()
                .unwrap()
                .contains("known"),
            "{policy}"
        );
        assert_eq!(policy["limits"]["memory_bytes"]["value"], 300 << 20);
        assert!(text(&read("brig://doctor")).contains("network-off: enforced"));
        // Of this machine nothing, and of no other session.
        let code = if era == Era::Legacy { -32002 } else { -32602 };
        for uri in [
            "brig://session/t/a",
            "brig://session/s/none",
            "brig://execution/x/stdout",
            "file:///etc/passwd",
        ] {
            assert_eq!(read(uri)["error"]["code"], code, "{uri}");
        }
        let templates = client.request("resources/templates/list", json!({}));
        let first = &templates["result"]["resourceTemplates"][0];
        assert_eq!(first["uriTemplate"], "brig://session/{session}/{+path}");
    }
}
