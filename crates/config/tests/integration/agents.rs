//! Agent files, and what a run of an agent reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brig_config::{
    AgentFile, By, Choice, Error, PolicySource, Source, Store, agent_schema, resolve,
};

const AGENT: &str = "\
name: reviewer
command: [python3, review.py]
policy: policy.yaml
runtime:
  sandbox: true
  backend: native
  network_allowlist: [api.example.com, \"*.cdn.example.com:8443\"]
";

/// Files in memory, that knows how often each was read.
#[derive(Debug, Default)]
struct Counting {
    files: BTreeMap<PathBuf, String>,
    reads: RefCell<BTreeMap<PathBuf, u32>>,
}

impl Counting {
    fn with(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| (path.into(), (*text).into()));
        Self {
            files: files.collect(),
            reads: RefCell::default(),
        }
    }
}

impl Source for Counting {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        *self.reads.borrow_mut().entry(path.to_owned()).or_default() += 1;
        let text = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }
}

fn store() -> Store {
    Store::new("/home/config.yaml")
}

#[test]
fn every_file_is_read_once_however_the_sandbox_is_chosen() {
    let config = "sandbox: true\nsandbox_allowlist: [user.org]\naliases: {r: {path: /a/agent.yaml, sandbox: false}}\n";
    let files = [
        ("/home/config.yaml", config),
        ("/a/agent.yaml", AGENT),
        ("/a/policy.yaml", "network_allowlist: [policy.org]\n"),
    ];
    let paths = [
        (
            "explicit flag",
            "/a/agent.yaml",
            Some(false),
            false,
            By::Flag,
        ),
        (
            "explicit flag over an alias",
            "r",
            Some(true),
            true,
            By::Flag,
        ),
        ("alias", "r", None, false, By::Alias),
        ("user", "/a/agent.yaml", None, true, By::User),
    ];
    // An alias that turns the sandbox off is for a file as it was.
    let source = Counting::with(&files);
    let error = resolve(&source, &store(), "r", None).unwrap_err();
    assert_eq!(error.code(), "agent.untrusted", "{error}");
    let seen = resolve(&source, &store(), "r", Some(true))
        .unwrap()
        .identity;
    let trusted = format!("{{\"/a/agent.yaml\": \"{}\"}}", seen.digest);
    for (what, reference, flag, sandbox, by) in paths {
        let mut files = files.to_vec();
        if by == By::Alias {
            files.push(("/home/trusted-agents.json", &trusted));
        }
        let source = Counting::with(&files);
        let run = resolve(&source, &store(), reference, flag).unwrap();
        assert_eq!(run.choice, Choice { sandbox, by }, "{what}");
        // All that is needed is there, whoever decided.
        assert_eq!(run.agent.network_allowlist.len(), 2, "{what}");
        assert_eq!(run.user.allow().len(), 1, "{what}");
        assert_eq!(run.policy.unwrap().network_allowlist().len(), 1, "{what}");
        let reads = source.reads.borrow();
        assert_eq!(reads.len(), files.len(), "{what}: {reads:?}");
        assert!(reads.values().all(|reads| *reads == 1), "{what}: {reads:?}");
    }
}

#[test]
fn what_cannot_be_read_refuses_the_run_even_if_the_flag_decides() {
    let broken = [
        (
            "config",
            "sandbox_allowlist: [\n",
            AGENT,
            "name: p\n",
            "config.invalid",
        ),
        ("agent", "", "name: [\n", "name: p\n", "config.invalid"),
        ("policy", "", AGENT, "rulez: []\n", "config.invalid"),
    ];
    for (what, config, agent, policy, code) in broken {
        let files = [
            ("/home/config.yaml", config),
            ("/a/agent.yaml", agent),
            ("/a/policy.yaml", policy),
        ];
        for flag in [None, Some(true), Some(false)] {
            let source = Counting::with(&files);
            let error = resolve(&source, &store(), "/a/agent.yaml", flag).unwrap_err();
            assert_eq!(error.code(), code, "{what}: {error}");
        }
    }
    let without_policy = Counting::with(&[("/a/agent.yaml", AGENT)]);
    let error = resolve(&without_policy, &store(), "/a/agent.yaml", None).unwrap_err();
    assert_eq!(error.code(), "config.unreadable", "{error}");
    let valid = Counting::with(&[("/a/agent.yaml", AGENT), ("/a/policy.yaml", "name: p\n")]);
    resolve(&valid, &store(), "/a/agent.yaml", None).expect("control");
}

#[test]
fn a_name_is_an_alias_before_it_is_a_file() {
    let config = "aliases: {r: {path: /a/agent.yaml}}\n";
    let plain = "name: other\ncommand: [x]\n";
    let source = Counting::with(&[
        ("/home/config.yaml", config),
        ("/a/agent.yaml", "name: aliased\ncommand: [x]\n"),
        ("r", plain),
        ("./r", plain),
    ]);
    let name = |reference| {
        resolve(&source, &store(), reference, None)
            .unwrap()
            .agent
            .name
    };
    assert_eq!(name("r"), "aliased");
    assert_eq!(name("./r"), "other");
    let error = resolve(&source, &store(), "nobody", None).unwrap_err();
    assert!(
        matches!(&error, Error::NoAgent(name) if name == "nobody"),
        "{error}"
    );
}

#[test]
fn a_policy_is_a_path_or_stands_in_the_file() {
    let (agent, _) = AgentFile::parse("a.yaml", AGENT.as_bytes()).unwrap();
    assert!(
        matches!(agent.policy, Some(PolicySource::Path(path)) if path == Path::new("policy.yaml"))
    );
    let inline = "name: a\ncommand: [x]\npolicy:\n  name: own\n  network_allowlist: [a.org]\n";
    let (agent, _) = AgentFile::parse("a.yaml", inline.as_bytes()).unwrap();
    assert!(matches!(agent.policy, Some(PolicySource::Inline(own)) if own.name() == "own"));
    let wrong = "name: a\ncommand: [x]\npolicy:\n  name: own\n  network_allowlist: [\"*\"]\n";
    let Err(Error::Invalid { problems, .. }) = AgentFile::parse("a.yaml", wrong.as_bytes()) else {
        panic!("a wrong policy");
    };
    assert!(
        problems.iter().any(|problem| problem.at.line == 5),
        "{problems:#?}"
    );
}

#[test]
fn malformed_hosts_in_a_file_are_named_with_file_line_and_entry() {
    let entries = [
        ("api.example.com, other.com", "more than one entry"),
        ("api.example.com other.com", "space"),
        ("api.example.com\\tother.com", "space"),
        ("api.example.com\\nother.com", "space"),
        ("a\\u00a0b.org", "space"),
        ("a\\u3000b.org", "space"),
        (" a.org", "space"),
        ("https://a.org", "URL"),
        ("https://a.org/?token=abc", "URL"),
        ("a.org/path", "path"),
        ("user@a.org", "user name"),
        ("*", "whole network"),
        ("**", "whole network"),
        ("*.com", "anyone can register"),
        ("*.co.uk", "anyone can register"),
        ("a.*.org", "first label"),
        ("a.org:0", "not a valid port"),
        ("a.org:65536", "not a valid port"),
        ("a.org:http", "not a valid port"),
        ("", "empty"),
        ("a..org", ""),
        (".a.org", ""),
        ("0.0.0.0/0", "whole network"),
    ];
    for (entry, part) in entries {
        let text = format!(
            "name: a\ncommand: [x]\nruntime:\n  network_allowlist:\n    - good.org\n    - \"{entry}\"\n"
        );
        let Err(Error::Invalid { problems, file }) =
            AgentFile::parse("dir/a.yaml", text.as_bytes())
        else {
            panic!("`{entry}` was accepted");
        };
        assert_eq!(file, "dir/a.yaml");
        let [problem] = &problems[..] else {
            panic!("{problems:#?}");
        };
        let shown = problem.to_string();
        assert!(
            shown.starts_with("dir/a.yaml:6:7: runtime.network_allowlist[1]: "),
            "{shown}"
        );
        assert!(shown.contains(part), "{entry}: {shown}");
        assert_eq!(problem.code, "input.host");
        let config = format!("sandbox_blocklist:\n  - \"{entry}\"\n");
        assert!(brig_config::UserConfig::parse("c.yaml", config.as_bytes()).is_err());
    }
    // One host, however it is written.
    let text = "name: a\ncommand: [x]\nruntime: {network_allowlist: [\"BÜCHER.example.\", xn--bcher-kva.example]}\n";
    let (agent, _) = AgentFile::parse("a.yaml", text.as_bytes()).unwrap();
    assert_eq!(agent.network_allowlist[0], agent.network_allowlist[1]);
}

#[test]
fn what_makes_no_sense_in_an_agent_file_is_an_error() {
    for (text, line, part) in [
        ("", 1, "must be a map"),
        ("name: a\n", 1, "`command` is missing"),
        ("command: [x]\n", 1, "`name` is missing"),
        ("name: a\ncommand: x y\n", 2, "must be a list"),
        ("name: a\ncommand: []\n", 2, "no program"),
        ("name: a\ncommand: [\"\"]\n", 2, "no program"),
        ("name: a\ncommand: [sleep, 5]\n", 2, "must be text"),
        ("name: ../a\ncommand: [x]\n", 1, "not a valid agent name"),
        (
            "name: a\ncommand: [x]\nruntime: {sandbx: true}\n",
            3,
            "did you mean `sandbox`",
        ),
        (
            "name: a\ncommand: [x]\nruntime: {sandbox: \"yes\"}\n",
            3,
            "`true` or `false`",
        ),
        (
            "name: a\ncommand: [x]\npolicy: [p.yaml]\n",
            3,
            "a path or a policy",
        ),
    ] {
        let Err(Error::Invalid { problems, .. }) = AgentFile::parse("a.yaml", text.as_bytes())
        else {
            panic!("{text}");
        };
        let found = problems.iter().any(|problem| {
            let shown = format!("{problem} {}", problem.fix.as_deref().unwrap_or_default());
            problem.at.line == line && shown.contains(part)
        });
        assert!(found, "{text}: {problems:#?}");
    }
}

#[test]
fn the_schema_is_current_and_takes_what_is_taken() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/agent.schema.json");
    if std::env::var_os("BRIG_BLESS").is_some() {
        fs::write(&path, agent_schema()).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == agent_schema(),
        "schema/agent.schema.json is out of date; run `BRIG_BLESS=1 cargo test -p brig-config`"
    );
    let schema: serde_json::Value = serde_json::from_str(&agent_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::json!({
        "name": "a", "command": ["x"], "policy": {"name": "p", "rules": []},
        "runtime": {"sandbox": null, "network_allowlist": ["a.org", "*.b.org:443"]},
    });
    assert!(validator.is_valid(&good), "{:?}", validator.validate(&good));
    assert!(AgentFile::parse("a.json", good.to_string().as_bytes()).is_ok());
    for bad in [
        serde_json::json!({ "name": "a" }),
        serde_json::json!({ "name": "a", "command": [] }),
        serde_json::json!({ "name": "a", "command": ["x"], "policy": ["p.yaml"] }),
        serde_json::json!({ "name": "a", "command": ["x"], "runtime": {"network_allowlist": ["a, b"]} }),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
        assert!(AgentFile::parse("a.json", bad.to_string().as_bytes()).is_err());
    }
}

#[test]
fn the_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/agents.md");
    let (start, end) = ("<!-- fields: generated -->\n", "<!-- end of fields -->");
    let page = fs::read_to_string(&path).unwrap_or_default();
    let (head, rest) = page
        .split_once(start)
        .expect("the page has a place for them");
    let (kept, tail) = rest.split_once(end).expect("and an end");
    let now = brig_config::reference();
    if std::env::var_os("BRIG_BLESS").is_some() {
        fs::write(&path, format!("{head}{start}{now}{end}{tail}")).unwrap();
        return;
    }
    assert!(
        kept == now,
        "docs/reference/agents.md is out of date; run `BRIG_BLESS=1 cargo test -p brig-config`"
    );
}

#[test]
fn a_file_that_turns_the_sandbox_off_needs_the_trust_of_the_user() {
    let off = "name: a\ncommand: [x]\nruntime: {sandbox: false}\n";
    let files = [("/a/agent.yaml", off)];
    let source = Counting::with(&files);
    let error = resolve(&source, &store(), "/a/agent.yaml", None).unwrap_err();
    assert_eq!(error.code(), "agent.untrusted", "{error}");
    let asked = resolve(&source, &store(), "/a/agent.yaml", Some(true)).unwrap();
    let list = |digest: &str| format!("{{\"/a/agent.yaml\": \"{digest}\"}}");
    let good = list(&asked.identity.digest);
    let other = list("sha256:00");
    for (list, trusted) in [(&good, true), (&other, false), (&"{}".to_owned(), false)] {
        let files = [files[0], ("/home/trusted-agents.json", list.as_str())];
        let run = resolve(&Counting::with(&files), &store(), "/a/agent.yaml", None);
        assert_eq!(run.is_ok_and(|run| !run.choice.sandbox), trusted, "{list}");
    }
    // What the user says needs no trust, and is not changed by it.
    let config = ("/home/config.yaml", "sandbox: true\n");
    let files = [files[0], config, ("/home/trusted-agents.json", &good)];
    let run = resolve(&Counting::with(&files), &store(), "/a/agent.yaml", None).unwrap();
    assert_eq!(
        run.choice,
        Choice {
            sandbox: true,
            by: By::User
        }
    );
}
