//! Running code and commands.

use serde_json::{Value, json};

use super::client::{Client, ERAS, Era};
use crate::common::Brig;

#[test]
fn code_and_commands_run_and_share_the_files_of_a_session() {
    for era in ERAS {
        let brig = Brig::new();
        let mut client = Client::start(&brig, era, &[]);
        let ran = client.done("run_code", json!({"code": "print(6 * 7)"}));
        assert_eq!(
            (&ran["stdout"], &ran["exit_code"]),
            (&json!("42\n"), &json!(0))
        );
        assert!(ran.get("session").is_none(), "{ran}");

        let write = "open('a.txt', 'w').write('kept')";
        let ran = client.done("run_code", json!({"code": write, "session": "one"}));
        assert_eq!(
            (&ran["session"], &ran["session_is_new"]),
            (&json!("one"), &json!(true))
        );
        let ran = client.done(
            "run_command",
            json!({"command": "cat a.txt", "session": "one"}),
        );
        assert_eq!(
            (&ran["stdout"], &ran["session_is_new"]),
            (&json!("kept"), &json!(false))
        );
        // Another session, and a call without one, do not see it.
        for elsewhere in [
            json!({"command": "cat a.txt", "session": "two"}),
            json!({"command": "cat a.txt"}),
        ] {
            let ran = client.done("run_command", elsewhere);
            assert_eq!(ran["exit_code"], 1);
        }
        assert_eq!(
            client.done("end_session", json!({"session": "one"})),
            json!({"ended": true})
        );
        assert_eq!(
            client.done("end_session", json!({"session": "one"})),
            json!({"ended": false})
        );
        let ran = client.done(
            "run_command",
            json!({"command": "cat a.txt", "session": "one"}),
        );
        assert_eq!(
            (&ran["exit_code"], &ran["session_is_new"]),
            (&json!(1), &json!(true))
        );
        assert_eq!(client.close(), Some(0));
    }
}

#[test]
fn a_command_gets_its_arguments_variables_directory_and_input() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let ran = client.done(
        "run_command",
        json!({
            "argv": ["sh", "-c", "cat; echo $A; pwd; exit 3"],
            "env": {"A": "b c"}, "cwd": "/tmp", "stdin": "in\n",
        }),
    );
    // A program that fails is no failure of the tool.
    assert_eq!(
        (&ran["stdout"], &ran["exit_code"]),
        (&json!("in\nb c\n/tmp\n"), &json!(3))
    );
    let ran = client.done(
        "run_code",
        json!({"code": "echo $((6 * 7))", "language": "bash"}),
    );
    assert_eq!(ran["stdout"], "42\n");
    for wrong in [
        json!({}),
        json!({"command": "ls", "argv": ["ls"]}),
        json!({"argv": []}),
        json!({"command": "ls", "session": "../x"}),
        json!({"command": "ls", "image": "debian"}),
    ] {
        assert_eq!(client.failed("run_command", wrong)["code"], "mcp.arguments");
    }
    // The same filter as everywhere.
    let env = json!({"command": "ls", "env": {"LD_PRELOAD": "/x.so"}});
    assert_eq!(client.failed("run_command", env)["code"], "input.config");
}

#[test]
fn a_denial_says_why_and_not_to_retry() {
    let brig = Brig::new();
    brig.write(
        "policy.yaml",
        "version: '1.0'\nname: strict\nrules:\n  - name: no-sockets\n    condition: {field: code, operator: \
         contains, value: socket}\n    action: deny\n    message: sockets are not allowed\ndefaults: {action: \
         allow}\n",
    );
    for era in ERAS {
        let mut client = Client::start(
            &brig,
            era,
            &["--policy", "policy.yaml", "--agent", "tester"],
        );
        let why = client.failed("run_code", json!({"code": "import socket"}));
        assert_eq!(
            (&why["code"], &why["rule"]),
            (&json!("policy.rule"), &json!("no-sockets"))
        );
        assert_eq!(why["retryable"], false);
        let operator = why["would_allow"].as_str().unwrap();
        assert!(
            operator.starts_with("for the operator: change rule `no-sockets`"),
            "{operator}"
        );
        assert!(operator.contains("policy.yaml"), "{operator}");
        // The positive control.
        client.done("run_code", json!({"code": "print(1)"}));
        assert_eq!(client.close(), Some(0));
        let shown = brig.run(["audit", "show", "--json"]).exits(0).stdout();
        let id = why["execution"].as_str().unwrap();
        assert!(
            shown.contains(id) && shown.contains("\"tester\""),
            "{shown}"
        );
    }
}

#[test]
fn a_host_that_is_denied_while_it_runs_is_listed() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let code = "import socket\ntry:\n    socket.create_connection(('example.com', 443), 5)\nexcept OSError: print('no')";
    let ran = client.done("run_code", json!({"code": code}));
    assert_eq!(ran["stdout"], "no\n");
    let denied = &ran["denied"][0];
    assert_eq!(denied["kind"], "network", "{ran}");
    assert!(
        denied["what"].as_str().unwrap().contains("example.com"),
        "{denied}"
    );
    assert!(
        denied["allow_once"]
            .as_str()
            .unwrap()
            .contains("--allow example.com"),
        "{denied}"
    );
    // Nothing was denied: nothing is listed.
    assert_eq!(
        client.done("run_code", json!({"code": "1"}))["denied"],
        json!([])
    );
}

#[test]
fn a_timeout_ends_it_and_can_only_be_shorter() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &["--timeout", "2s"]);
    let sleep = |timeout| json!({"command": "sleep 50", "timeout": timeout});
    let why = client.failed("run_command", sleep(json!(0.3)));
    assert_eq!(
        (&why["code"], &why["killed"]),
        (&json!("run.timeout"), &json!("timeout"))
    );
    assert_eq!(why["message"], "it ran longer than 0.3 s");
    // The operator's limit holds, whatever is asked for.
    let why = client.failed("run_command", sleep(json!(1000)));
    assert_eq!(why["message"], "it ran longer than 2 s");
}

#[test]
fn figures_come_back_as_images_once() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let png = "import struct, zlib\ndef chunk(k, d): return struct.pack('>I', len(d)) + k + d + struct.pack('>I', \
               zlib.crc32(k + d))\ndef png(v): return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', \
               1, 1, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes([0, v]))) + chunk(b'IEND', b'')\n";
    let images = |result: &serde_json::Value| {
        let content = result["content"].as_array().unwrap().iter();
        content
            .filter(|block| block["type"] == "image")
            .cloned()
            .collect::<Vec<_>>()
    };
    let draw = |value: u8| format!("{png}open('figure.png', 'wb').write(png({value}))");
    for session in [json!(null), json!("plots")] {
        let result = client.call("run_code", json!({"code": draw(1), "session": session}));
        let shown = images(&result);
        assert_eq!(
            (shown.len(), &shown[0]["mimeType"]),
            (1, &json!("image/png"))
        );
        assert!(
            shown[0]["data"]
                .as_str()
                .unwrap()
                .starts_with("iVBORw0KGgo")
        );
        assert_eq!(result["structuredContent"]["images"], json!(["figure.png"]));
    }
    // What did not change is not shown again; what did is.
    let result = client.call("run_code", json!({"code": "1", "session": "plots"}));
    assert_eq!(images(&result).len(), 0);
    let result = client.call("run_code", json!({"code": draw(2), "session": "plots"}));
    assert_eq!(images(&result).len(), 1);
    // A name alone makes no image.
    let code = "open('b.png', 'w').write('text')";
    let result = client.call("run_code", json!({"code": code, "session": "plots"}));
    assert_eq!(images(&result).len(), 0);
}

#[test]
fn long_output_keeps_its_ends_and_is_a_resource() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &[]);
    let code = "print('first'); print('x' * 200_000); print('last')";
    let result = client.call("run_code", json!({"code": code}));
    let ran = &result["structuredContent"];
    let stdout = ran["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("first\n") && stdout.ends_with("last\n") && stdout.len() < 40_000);
    assert!(stdout.contains("bytes left out"));
    assert_eq!(
        (&ran["truncated"], &ran["stdout_bytes"]),
        (&json!(true), &json!(200_012))
    );
    let links = result["content"].as_array().unwrap().iter();
    let link = links
        .into_iter()
        .find(|block| block["type"] == "resource_link")
        .unwrap();
    let whole = client.request("resources/read", json!({"uri": link["uri"]}));
    let text = whole["result"]["contents"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 200_012);
}

#[test]
fn an_approval_is_asked_of_the_operator_and_never_of_the_model() {
    let brig = Brig::new();
    let policy = |seconds: u32| {
        format!(
            "version: '1.0'\nname: p\ndefaults: {{action: require_approval, approval_timeout_seconds: {seconds}}}\n"
        )
    };
    brig.write("policy.yaml", &policy(60));
    let mut client = Client::start(&brig, Era::Modern, &["--policy", "policy.yaml"]);
    let call = client.send_call("run_code", json!({"code": "print(6 * 7)"}));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let id = loop {
        let listed = brig.run(["approvals", "ls", "--json"]).exits(0).json();
        if let Some(id) = listed["approvals"][0]["id"].as_str() {
            break id.to_owned();
        }
        assert!(std::time::Instant::now() < until, "nothing waits");
    };
    brig.run(["approvals", "approve", &id]).exits(0);
    let answer = client.answer(call);
    let result = &answer["result"]["structuredContent"];
    assert_eq!(result["stdout"], "42\n", "{answer}");
    assert_eq!(client.close(), Some(0));

    brig.write("policy.yaml", &policy(1));
    let mut client = Client::start(&brig, Era::Modern, &["--policy", "policy.yaml"]);
    let answer = client.call("run_code", json!({"code": "print(6 * 7)"}));
    let result = &answer["structuredContent"];
    assert_eq!(result["code"], "policy.approval", "{answer}");
    assert_eq!(result["retryable"], false);
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("wait until they ask you"), "{text}");
    assert_eq!(client.close(), Some(0));
}

/// A request that nobody waits for any more can't be approved, and nothing of it runs later.
#[test]
fn a_cancelled_call_is_no_longer_offered_for_approval() {
    let brig = Brig::new();
    let policy = "version: '1.0'\nname: p\ndefaults: {action: require_approval, approval_timeout_seconds: 300}\n";
    brig.write("policy.yaml", policy);
    for session in [json!(null), json!("s")] {
        let mut client = Client::start(&brig, Era::Modern, &["--policy", "policy.yaml"]);
        let waiting = || {
            let listed = brig.run(["approvals", "ls", "--json"]).exits(0).json();
            listed["approvals"][0]["id"].as_str().map(str::to_owned)
        };
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let in_time = || assert!(std::time::Instant::now() < until, "too late");
        let call = client.send_call("run_code", json!({"code": "1", "session": session}));
        let id = loop {
            in_time();
            if let Some(id) = waiting() {
                break id;
            }
        };
        client.write(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
                .to_string(),
        );
        while waiting().is_some() {
            in_time();
        }
        brig.run(["approvals", "approve", &id]).exits(125);
        // A client that goes away while it waits is not waited for.
        client.send_call("run_code", json!({"code": "2", "session": session}));
        while waiting().is_none() {
            in_time();
        }
        assert_eq!(client.close(), Some(0));
        assert_eq!(waiting(), None);
    }
    let shown = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    assert!(!shown.contains("execution_started"), "{shown}");
    assert!(shown.matches("\"cancelled\"").count() >= 4, "{shown}");
}

#[test]
fn the_operator_sets_how_much_is_shown() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Modern, &["--show-output", "100B"]);
    let code = "print('x' * 150); print('last')";
    let ran = client.call("run_code", json!({"code": code}))["structuredContent"].clone();
    let stdout = ran["stdout"].as_str().unwrap();
    assert!(
        stdout.ends_with("last\n") && stdout.contains("[… 56 bytes left out …]"),
        "{stdout}"
    );
    assert_eq!(ran["truncated"], true);
    assert_eq!(client.close(), Some(0));
    brig.run(["mcp", "--show-output", "5M"])
        .exits(125)
        .complains("at most 4M");
}

/// Of a call that ran and of one that was denied.
#[test]
fn a_result_names_the_receipt_that_is_in_the_log() {
    let brig = Brig::new();
    let policy = "version: '1.0'\nname: p\ndefaults: {action: allow}\nrules:\n- {name: no-os, action: deny, condition: {field: code, operator: contains, value: import os}}\n";
    brig.write("p.yaml", policy);
    let mut client = Client::start(&brig, Era::Modern, &["--policy", "p.yaml"]);
    let metas = ["print(1)", "import os"].map(|code| {
        let result = client.call("run_code", json!({"code": code}));
        assert_eq!(result["isError"], code != "print(1)", "{result}");
        result["_meta"].clone()
    });
    assert_eq!(client.close(), Some(0));
    for meta in metas {
        let id = meta["io.brig/execution"].as_str().unwrap();
        let of_it = [
            "audit",
            "show",
            "--json",
            "--event",
            "receipt",
            "--execution",
            id,
        ];
        let line: Value = serde_json::from_str(&brig.run(of_it).exits(0).stdout()).unwrap();
        let text = brig_audit::canonical::to_canonical(&line["record"]).unwrap();
        let digest = brig_audit::receipt::digest(text.as_bytes());
        assert_eq!(meta["io.brig/receipt"], digest, "{line}");
    }
}

#[test]
fn the_trace_of_a_call_is_in_its_receipt() {
    let brig = Brig::new();
    let mut client = Client::start(&brig, Era::Legacy, &[]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for given in [trace, "00-not-a-trace"] {
        let answer = client.request(
            "tools/call",
            json!({"name": "run_code", "arguments": {"code": "1"}, "_meta": {"traceparent": given}}),
        );
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let meta = &answer["result"]["_meta"];
        assert!(meta["io.brig/execution"].is_string(), "{answer}");
    }
    assert_eq!(client.close(), Some(0));
    let shown = brig.run(["audit", "show", "--json", "--event", "receipt"]);
    let shown = shown.exits(0).stdout();
    assert_eq!(shown.matches(trace).count(), 1, "{shown}");
    assert!(!shown.contains("not-a-trace"), "{shown}");
}
