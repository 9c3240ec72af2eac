use std::fmt::Write as _;

use brig_schema::Severity;

use super::*;

fn errors(text: &str) -> Vec<String> {
    match Document::load("p.yaml", text, Compat::Strict) {
        Ok(_) => panic!("loaded: {text}"),
        Err(problems) => problems.errors().map(ToString::to_string).collect(),
    }
}

fn fixes(text: &str) -> Vec<String> {
    let problems = Document::load("p.yaml", text, Compat::Strict).expect_err(text);
    problems
        .errors()
        .filter_map(|problem| problem.fix.clone())
        .collect()
}

fn load(text: &str) -> Document {
    let loaded = Document::load("p.yaml", text, Compat::Strict);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    (*loaded.document).clone()
}

fn lenient(text: &str) -> Loaded {
    Document::load("p.yaml", text, Compat::Agt).unwrap_or_else(|problems| panic!("{problems}"))
}

const RULES: &str = "rules:\n  - name: r\n    condition: {field: code, operator: contains, value: x}\n    action: deny\n";

#[test]
fn a_full_document_is_read() {
    let document = load(
        "version: \"2\"
name: full
description: all of it
rules:
  - name: no-shell
    condition: {field: code, operator: matches, value: 'os\\.system'}
    action: block
    priority: 100
    message: no shells
    override: true
defaults:
  action: allow
  max_tokens: 100
  max_tool_calls: 3
  confidence_threshold: 0.5
  max_cpu: 1.5
  max_memory_mb: 2048
  timeout_seconds: 90
  network_default: deny
inherit: false
scope: src/*
network_allowlist: [pypi.org, '*.github.com:443']
tool_allowlist: [fetch]
sandbox_mounts: {input_dir: /data, output_dir: null}
command_denylist: [curl, /usr/bin/wget]
command_allowlist: [python3]
max_processes: 16
max_disk_mb: 64
max_output_bytes: 1000
env: {LANG: C}
waive: [cpu]
",
    );
    assert_eq!(document.name(), "full");
    assert_eq!(document.rules()[0].reason(), "no shells");
    assert_eq!(document.rules()[0].at(), Position { line: 5, column: 5 });
    assert_eq!(
        document
            .limits()
            .max_memory_mb
            .as_ref()
            .map(|given| given.value),
        Some(2048)
    );
    let processes = document.limits().max_processes.as_ref().expect("given");
    assert_eq!(
        (processes.value, processes.at.map(|at| at.line)),
        (16, Some(27))
    );
    assert_eq!(document.network_allowlist().len(), 2);
    assert_eq!(document.mounts().output_dir, None);
    assert_eq!(document.command_allowlist().map(<[_]>::len), Some(1));
    assert!(!document.inherit);
}

#[test]
fn what_is_missing_is_closed() {
    let document = load("name: empty\n");
    assert_eq!(document.defaults().action, Given::default_of(Verdict::Deny));
    assert_eq!(
        document.defaults().network,
        Given::default_of(Verdict::Deny)
    );
    assert!(document.network_allowlist().is_empty());
    let loaded = lenient("name: empty\n");
    assert_eq!(loaded.document.defaults().action.value, Verdict::Allow);
    assert_eq!(loaded.document.defaults().network.value, Verdict::Deny);
    assert_eq!(loaded.warnings[0].code, "policy.open-default");
}

#[test]
fn every_error_names_file_line_column_entry_and_fix() {
    let problems =
        Document::load("p.yaml", "name: x\nrulse: []\n", Compat::Strict).expect_err("a typo");
    let problem = &problems.0[0];
    assert_eq!(
        problem.to_string(),
        "p.yaml:2:1: rulse: unknown key `rulse`"
    );
    assert_eq!(problem.fix.as_deref(), Some("did you mean `rules`?"));
    assert_eq!(problem.code, "policy.unknown-key");
}

#[test]
fn all_errors_of_a_file_are_told_at_once() {
    let found = errors(
        "name: ''
defaults:
  action: alow
  max_memory_mb: -1
  timeout_seconds: 0
  max_cpu: 0
  network_default: DENY
rules:
  - name: a
    condition: {field: code, operator: like, value: 1}
    action: deny
    priority: high
  - condition: {field: x, operator: matches, value: '('}
    action: deny
network_allowlist: ['a, b', '', 'https://x', '*']
tool_allowlist: ['', 3]
command_denylist: ['  ', 'bin/az login', '@netwrk']
env: {1A: x, OK: 5}
waive: [memroy]
max_processes: 0
colour: red
",
    );
    let expected = [
        "1:7: name: must not be empty",
        "3:11: defaults.action: must be one of allow, deny, audit, block, require_approval, found `alow`",
        "4:18: defaults.max_memory_mb: `-1` is out of range",
        "5:20: defaults.timeout_seconds: `0` is out of range",
        "6:12: defaults.max_cpu: `0.0` is out of range",
        "7:20: defaults.network_default: must be one of allow, deny, found `DENY`",
        "10:40: rules[0].condition.operator: must be one of eq",
        "12:15: rules[0].priority: must be an integer, found text",
        "13:5: rules[1]: `name` is missing",
        "13:53: rules[1].condition.value: bad pattern `(`: a `(` without its `)`",
        "15:21: network_allowlist[0]: `a, b` is not a valid host: it contains more than one entry",
        "15:29: network_allowlist[1]: `` is not a valid host: it is empty",
        "15:33: network_allowlist[2]: `https://x` is not a valid host: it is a URL",
        "15:46: network_allowlist[3]: `*` is not a valid host: it would allow the whole network",
        "16:18: tool_allowlist[0]: an empty tool name",
        "16:22: tool_allowlist[1]: must be text, found an integer",
        "17:20: command_denylist[0]: an empty command name",
        "17:26: command_denylist[1]: `bin/az login` is not a valid command: it is a relative path",
        "17:42: command_denylist[2]: there is no command set `@netwrk`",
        "18:7: env.1A: `1A` is not a valid variable name",
        "18:18: env.OK: must be text, found an integer",
        "19:9: waive[0]: there is no control `memroy`",
        "20:16: max_processes: `0` is out of range",
        "21:1: colour: unknown key `colour`",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.starts_with(&format!("p.yaml:{expected}")),
            "{found}\n{expected}"
        );
    }
}

#[test]
fn fixes_say_what_was_probably_meant() {
    assert_eq!(
        fixes("max_cpu: 1\n"),
        ["`max_cpu` belongs under `defaults`"]
    );
    assert_eq!(fixes("version: 1.0\n"), ["quote it: \"1.0\""]);
    assert_eq!(
        fixes("defaults: {action: Deny}\n"),
        ["did you mean `deny`?"]
    );
    assert_eq!(fixes("waive: [memroy]\n"), ["did you mean `memory`?"]);
    assert_eq!(
        fixes("inherit: yes\n"),
        ["write `true`, or \"yes\" for text"]
    );
}

#[test]
fn yaml_that_hides_its_meaning_is_refused() {
    let cases = [
        (
            "name: a\nname: b\n",
            "2:1: name: the key `name` was given on line 1 already",
        ),
        (
            "rules:\n  - name: a\n  - name: b\n    name: c\n",
            "4:5: rules[1].name: the key `name` was given on line 3 already",
        ),
        ("a: &x [1]\n<<: *x\n", "2:1: `<<` brings in another map"),
        (
            "name: !!str 1\n",
            "1:7: name: the tag `!!str` is not allowed",
        ),
        (
            "name: !python/object x\n",
            "1:7: name: the tag `!python/object` is not allowed",
        ),
        ("? [a]\n: 1\n", "1:3: a key must be text, found a list"),
        ("1: 2\n", "1:1: a key must be text, found an integer"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document in one file"),
        (
            "a: &x\n  b: *x\n",
            "2:6: an alias for the very value it is part of",
        ),
        ("name: \"\u{1}\"\n", "1:8: a control character"),
        ("name: [\n", "not YAML"),
        ("a:\n\t- x\n", "not YAML"),
        ("", "a map, found null"),
        ("- a\n", "must be a map, found a list"),
    ];
    for (text, expected) in cases {
        let found = Document::load("p.yaml", text, Compat::Strict);
        match found {
            Ok(_) => panic!("loaded: {text:?}"),
            Err(problems) => {
                let text_of = problems.to_string();
                assert!(text_of.contains(expected), "{text:?}: {text_of}");
            }
        }
    }
}

#[test]
fn also_with_agt_no_key_is_dropped_unseen() {
    let text = RULES.replace("value: x", "value: {1: x}");
    let problems = Document::load("p.yaml", &text, Compat::Agt).expect_err("a key that is no text");
    assert!(
        problems.to_string().contains("a key must be text"),
        "{problems}"
    );
    let text = RULES.replace("value: x", "value: !!float 1");
    let loaded = lenient(&text);
    assert_eq!(loaded.document.rules()[0].condition.value.repr(), "1.0");
}

#[test]
fn bombs_end_quickly() {
    let mut laughs = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (this, last) in ('b'..='j').zip('a'..) {
        let _ = writeln!(
            laughs,
            "{this}: &{this} [*{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}]"
        );
    }
    assert!(
        errors(&laughs)
            .iter()
            .any(|error| error.contains("more than 200000 values"))
    );
    for deep in ["[", "{", "- ", "? ", "{a: "] {
        assert!(!errors(&deep.repeat(100_000)).is_empty(), "{deep}");
    }
    let large = format!("description: {}\n", "x".repeat(1 << 20));
    assert_eq!(
        errors(&large),
        ["p.yaml:1:1: the file has 1048590 bytes, at most 1048576 are read"]
    );
    let problems = Document::load("p.yaml", b"name: \xff\n", Compat::Strict).expect_err("bytes");
    assert_eq!(problems.to_string(), "p.yaml:1:7: the file is not UTF-8");
}

#[test]
fn hosts_have_one_form_and_wide_ones_are_told() {
    let text = "name: n\nnetwork_allowlist: [PyPI.org., 'Bücher.example:*', '*.github.io']\n";
    let loaded = Document::load("p.yaml", text, Compat::Strict);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let hosts = loaded.document.network_allowlist().iter();
    let hosts: Vec<String> = hosts.map(|given| given.value.to_string()).collect();
    assert_eq!(
        hosts,
        ["pypi.org", "xn--bcher-kva.example:*", "*.github.io"]
    );
    let [warning] = loaded.warnings.as_slice() else {
        panic!("{:#?}", loaded.warnings);
    };
    assert_eq!(warning.code, "policy.public-host");
    let text = "name: n\nnetwork_allowlist: ['*.com']\n";
    let problems = Document::load("p.yaml", text, Compat::Strict).expect_err("too wide");
    assert!(
        problems
            .to_string()
            .contains("anyone can register a name below `com`")
    );
}

#[test]
fn with_agt_nonsense_is_a_warning() {
    let text = "
name: lenient
extra: 1
inherit: 'yes'
defaults: {action: allow, max_memory_mb: -5, max_tokens: '100', confidence_threshold: 7}
rules:
  - name: r
    condition: {field: code, operator: matches, value: '('}
    action: deny
    priority: '7'
network_allowlist: ['a, b', pypi.org]
tool_allowlist: ['']
";
    let loaded = lenient(text);
    let document = &loaded.document;
    assert_eq!(document.limits().max_memory_mb, None);
    assert_eq!(document.defaults().max_tokens.value, 100);
    assert_eq!(*document.rules()[0].priority(), 7);
    assert_eq!(document.network_allowlist().len(), 1);
    assert!(document.tool_allowlist().is_empty());
    assert!(
        loaded
            .warnings
            .iter()
            .all(|problem| problem.severity == Severity::Warning)
    );
    assert_eq!(loaded.warnings.len(), 9, "{:#?}", loaded.warnings);
    for refused in [
        "version: 1\n",
        "rules: null\n",
        "defaults: {network_default: DENY}\n",
        "defaults: {timeout_seconds: 1.5}\n",
        "tool_allowlist: [1]\n",
        "inherit: 2\n",
        "rules: [{name: x}]\n",
    ] {
        assert!(
            Document::load("p.yaml", refused, Compat::Agt).is_err(),
            "{refused}"
        );
    }
}

#[test]
fn a_condition_that_can_only_fail_is_refused() {
    let rule = |operator: &str, value: &str| {
        format!(
            "rules:\n  - name: r\n    condition: {{field: code, operator: {operator}, value: {value}}}\n    action: deny\n"
        )
    };
    for (operator, value) in [
        ("in", "3"),
        ("not_in", "null"),
        ("gt", "null"),
        ("lte", "{a: 1}"),
    ] {
        assert!(
            errors(&rule(operator, value))[0].contains("would always fail"),
            "{operator}"
        );
    }
    for (operator, value) in [
        ("in", "abc"),
        ("in", "[1]"),
        ("gt", "'a'"),
        ("contains", "1"),
        ("eq", "null"),
    ] {
        load(&rule(operator, value));
    }
}

#[test]
fn doubtful_rules_are_warned_about() {
    let text = "rules:
  - {name: a, condition: {field: cod, operator: eq, value: 1}, action: deny}
  - {name: a, condition: {field: ticket, operator: matches, value: 5}, action: deny}
";
    let loaded = Document::load("p.yaml", text, Compat::Strict).expect("valid");
    let codes: Vec<_> = loaded.warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(
        codes,
        ["policy.field", "policy.duplicate-rule", "policy.type"]
    );
}

#[test]
fn a_limit_stands_in_one_place() {
    let document = load("defaults: {max_processes: 4}\n");
    assert_eq!(
        document
            .limits()
            .max_processes
            .as_ref()
            .map(|given| given.value),
        Some(4)
    );
    let found = errors("defaults: {max_processes: 4}\nmax_processes: 5\n");
    assert!(
        found[0].contains("is given both in and outside `defaults`"),
        "{found:?}"
    );
}

#[test]
fn the_digest_is_of_the_meaning_not_of_the_text() {
    let yaml = load(&format!("{RULES}name: x\ndefaults: {{action: deny}}\n"));
    let json = r#"{"name": "x", "rules": [{"action": "deny", "name": "r", "priority": 0,
        "condition": {"value": "x", "operator": "contains", "field": "code"}}]}"#;
    let json = Document::load("p.json", json, Compat::Strict)
        .expect("valid")
        .document;
    assert_eq!(yaml.digest(), json.digest());
    assert_eq!(yaml.canonical(), json.canonical());
    let other = load(&format!("{RULES}name: x\ndefaults: {{action: allow}}\n"));
    assert_ne!(yaml.digest(), other.digest());
    // Pinned: a digest that someone wrote down must stay right.
    assert_eq!(
        load("name: pinned\n").digest().to_string(),
        "sha256:49b0b36dc531f366476ad254ced181c8aecc8310a194768ce4637e3b0dbf4ea8"
    );
}

#[test]
fn a_rule_over_a_host_says_that_it_decides_no_connection() {
    let rule = |field: &str| {
        let text = format!(
            "rules:\n  - {{name: a, condition: {{field: {field}, operator: eq, value: x}}, action: deny}}\n"
        );
        let loaded = Document::load("p.yaml", text.into_bytes(), Compat::Strict);
        let warnings = loaded.expect("valid").warnings;
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for field in ["host", "port"] {
        let [warning] = &rule(field)[..] else {
            panic!("{field}");
        };
        assert!(
            warning.contains("connections are not decided by rules"),
            "{warning}"
        );
    }
    assert!(rule("program").is_empty(), "control");
}
