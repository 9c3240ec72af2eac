//! What comes of the lists that people keep. Servers live on this machine's loopback, and are reached by a
//! rule for their address.

use std::fs;

use crate::common::Brig;
use crate::common::lists::{fetch, path, records, sandbox, server, text, write_config};
use serde_json::json;

#[test]
fn what_is_allowed_blocked_and_taken_back_holds_in_the_next_run() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    let run = |words: &[&str]| {
        let done = brig.run([&["run"], words, &["-c", &code]].concat());
        (done.stdout().trim().to_owned(), done.stderr())
    };
    assert_eq!(
        run(&[]),
        ("off".into(), String::new()),
        "no list, no network"
    );
    let (out, said) = run(&["--allow", &host]);
    assert_eq!(out, "hello");
    assert_eq!(said, format!("network: --allow allows 1 host: {host}\n"));
    let (out, _) = run(&["--allow", "other.example.com"]);
    assert!(out.starts_with("403 network."), "{out}");

    sandbox(&brig, &["allow", &host]).exits(0);
    let (out, said) = run(&["--allow", "other.example.com"]);
    assert_eq!(out, "hello");
    assert_eq!(
        said,
        format!(
            "network: user config allows 1 host: {host}\nnetwork: --allow allows 1 host: other.example.com\n"
        )
    );
    sandbox(&brig, &["block", "127.0.0.0/8"]).exits(0);
    let (out, said) = run(&["--allow", &host]);
    assert_eq!(out, "403 network.blocked");
    assert!(
        said.contains("network: user config blocks 1 host: 127.0.0.0/8\n"),
        "{said}"
    );
    assert!(
        said.ends_with(&format!(
            "denied: {host}: blocked by `127.0.0.0/8` (user config)\n\
             hint: brig sandbox unblock 127.0.0.0/8\n"
        )),
        "{said}"
    );
    sandbox(&brig, &["allow", &host])
        .exits(0)
        .complains("remains denied: `127.0.0.0/8` is blocked");
    sandbox(&brig, &["unblock", "127.0.0.0/8"]).exits(0);
    assert_eq!(run(&[]).0, "hello");
    sandbox(&brig, &["deny", &host]).exits(0);
    assert_eq!(run(&[]).0, "off");
}

#[test]
fn a_session_follows_the_lists_of_its_user() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    sandbox(&brig, &["allow", &host]).exits(0);
    brig.run(["session", "create", "s"])
        .exits(0)
        .complains(&format!("network: user config allows 1 host: {host}"));
    brig.run(["session", "create", "t", "--allow", &host])
        .exits(0);
    let exec = |session: &str| {
        let done = brig.run(["session", "exec", session, "-c", &code]).exits(0);
        done.stdout().trim().to_owned()
    };
    assert_eq!((exec("s"), exec("t")), ("hello".into(), "hello".into()));
    let says = format!("network: user config allows 1 host: {host}\n");
    brig.run(["session", "exec", "s", "--", "true"])
        .complains(&says);
    let both = format!("{says}network: --allow allows 1 host: {host}\n");
    let change = format!("network: session blocks 1 host: {host}\n");
    brig.run(["session", "network", "block", "t", &host])
        .exits(0);
    let told = brig.run(["session", "exec", "t", "--", "true"]).stderr();
    let mut told: Vec<&str> = told.lines().collect();
    told.sort_unstable();
    let told_all = both + &change;
    let mut all: Vec<&str> = told_all.lines().collect();
    all.sort_unstable();
    assert_eq!(told, all, "a line for each layer");
    brig.run(["session", "network", "allow", "t", &host])
        .exits(0);
    sandbox(&brig, &["deny", &host]).exits(0);
    assert_eq!(
        exec("s"),
        "off",
        "what was taken back is taken back here too"
    );
    brig.run(["session", "exec", "s", "--", "true"])
        .stays_silent();
    assert_eq!(
        exec("t"),
        "hello",
        "what the session was given itself stays"
    );
    sandbox(&brig, &["block", &host]).exits(0);
    assert_eq!(exec("t"), "403 network.blocked");
    sandbox(&brig, &["unblock", &host]).exits(0);
    sandbox(&brig, &["allow", &host]).exits(0);
    assert_eq!(exec("s"), "hello");
}

#[test]
fn an_open_policy_is_honoured_and_loudly_shown() {
    let brig = Brig::new();
    let port = server();
    brig.write(
        "open.yaml",
        "defaults: {action: allow, network_default: allow}\n",
    );
    let code = fetch(port);
    let done = brig
        .run(["run", "--policy", "open.yaml", "-c", &code])
        .exits(0);
    assert!(
        done.stderr()
            .contains("warning: NETWORK OPEN: the policy sets `network_default: allow`")
    );
    assert_eq!(
        done.stdout(),
        "403 network.address\n",
        "private addresses stay closed"
    );
    let host = format!("127.0.0.1:{port}");
    brig.run([
        "run",
        "--policy",
        "open.yaml",
        "--allow",
        &host,
        "-c",
        &code,
    ])
    .exits(0)
    .prints("hello\n");
}

#[test]
fn a_run_is_refused_if_the_configuration_cannot_be_read() {
    let brig = Brig::new();
    for (text, part) in [
        (
            "sandbox_allowlist: [a.example.com\n",
            "config.yaml:2:1: sandbox_allowlist[1]: not YAML",
        ),
        (
            "# mine\nsandbox_allowlist:\n  - good.example.com\n  - \"a.org, b.org\"\n",
            "config.yaml:4:5: sandbox_allowlist[1]: `a.org, b.org` is not a valid host: it \
             contains more than one entry [input.host]",
        ),
        (
            "sandbox_blocklists: [a.example.com]\n",
            "did you mean `sandbox_blocklist`?",
        ),
    ] {
        write_config(&brig, text);
        for words in [
            &["run", "-c", "print(1)"][..],
            &["run", "--allow", "x.example.com", "-c", "print(1)"],
            &["session", "create", "s"],
            &["sandbox", "list"],
            &["sandbox", "allow", "x.example.com"],
        ] {
            brig.run(words).exits(125).prints("").complains(part);
        }
        assert_eq!(self::text(&brig), text);
    }
    fs::remove_file(path(&brig)).unwrap();
    fs::create_dir(path(&brig)).unwrap();
    brig.run(["run", "-c", "print(1)"])
        .exits(125)
        .prints("")
        .complains("error: cannot read `")
        .complains("is a directory");
    fs::remove_dir(path(&brig)).unwrap();
    brig.run(["run", "-c", "print(1)"]).exits(0).prints("1\n");
    write_config(&brig, "colour: blue\n");
    brig.run(["run", "-c", "print(1)"])
        .exits(0)
        .prints("1\n")
        .complains("unknown key `colour`; it is kept, but has no effect");
}

#[test]
fn no_sandbox_sees_the_configuration() {
    let brig = Brig::new();
    sandbox(&brig, &["allow", "a.example.com"]).exits(0);
    let folder = brig.home().join("config");
    for place in [folder.clone(), folder.join("brig"), path(&brig)] {
        let mount = format!("{}:/x:rw", place.display());
        brig.run(["run", "--mount", &mount, "-c", "print(1)"])
            .exits(125)
            .complains("is refused");
    }
    let other = brig.home().join("other");
    fs::create_dir(&other).unwrap();
    let mount = format!("{}:/x:rw", other.display());
    brig.run(["run", "--mount", &mount, "-c", "print(1)"])
        .exits(0);
}

#[test]
fn what_was_denied_is_proposed_and_applied_only_on_request() {
    let brig = Brig::new();
    let port = server();
    let (host, code) = (format!("127.0.0.1:{port}"), fetch(port));
    sandbox(&brig, &["suggest"])
        .exits(0)
        .prints("")
        .complains("no denials are recorded");
    let names = "import urllib.request\n\
        for url in ['http://b.example.com/', 'https://b.example.com/', 'http://a.example.com:8080/']:\n    \
            try: urllib.request.urlopen(url, timeout=20)\n    \
            except OSError: pass\n";
    brig.run(["session", "create", "s", "--allow", &host])
        .exits(0);
    brig.run(["session", "exec", "s", "-c", names]).exits(0);
    brig.run(["run", "--allow", "none.example.com", "-c", &code])
        .exits(0);
    // The last run, although a session has more denials.
    sandbox(&brig, &["suggest"])
        .exits(0)
        .prints(&format!(
            "  sandbox_allowlist:\n?   - {host}  # a loopback address\n"
        ))
        .complains("hint: brig sandbox suggest --apply --private");
    sandbox(&brig, &["suggest", "--apply"]).exits(0);
    assert!(
        !path(&brig).exists(),
        "a private address needs a word of its own"
    );
    let proposal = sandbox(&brig, &["suggest", "s"]).exits(0);
    assert_eq!(
        proposal.stdout(),
        "  sandbox_allowlist:\n+   - a.example.com:8080\n+   - b.example.com\n"
    );
    proposal.complains("hint: brig sandbox suggest s --apply");
    assert!(!path(&brig).exists(), "only shown");
    let object = sandbox(&brig, &["suggest", "s", "--apply", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        object["add"],
        json!(["a.example.com:8080", "b.example.com"])
    );
    assert_eq!(object["applied"], json!(true));
    sandbox(&brig, &["suggest", "s"])
        .exits(0)
        .prints("")
        .complains("nothing to add");
    assert_eq!(records(&brig, "allowlist_changed").len(), 1);

    // A run without a denial is the last one all the same.
    brig.run(["run", "-c", "print(1)"]).exits(0);
    sandbox(&brig, &["suggest"])
        .exits(0)
        .prints("")
        .complains("the last run was denied nothing")
        .complains("hint: for the last one that was: brig sandbox suggest ");
    assert_eq!(
        sandbox(&brig, &["suggest", "--json"]).exits(0).json()["add"],
        json!([])
    );
}

#[test]
fn what_was_never_used_is_told() {
    let brig = Brig::new();
    let port = server();
    let host = format!("127.0.0.1:{port}");
    sandbox(&brig, &["allow", &host, "idle.example.com"]).exits(0);
    let object = sandbox(&brig, &["used", "--json"]).exits(0).json();
    assert_eq!(object["unused"], json!([host, "idle.example.com"]));
    brig.run(["run", "-c", &fetch(port)])
        .exits(0)
        .prints("hello\n");
    let object = sandbox(&brig, &["used", "--json"]).exits(0).json();
    assert_eq!(object["unused"], json!(["idle.example.com"]));
    assert!(object["entries"][0]["uses"].as_u64() > Some(0), "{object}");
    assert_eq!(
        object["entries"][1],
        json!({ "rule": "idle.example.com", "uses": 0, "last": null })
    );
    sandbox(&brig, &["used"])
        .exits(0)
        .complains("hint: brig sandbox deny 'idle.example.com'");
}
