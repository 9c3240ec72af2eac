//! Decisions, with several policies, in folders, and with their reasons.

use std::sync::Arc;

use brig_policy::{
    Action, Cases, Compat, Decider, Direction, Document, Map, Outcome, PolicySet, Request, Value,
    diff,
};

fn document(file: &str, text: &str) -> Arc<Document> {
    let loaded = Document::load(file, text, Compat::Strict);
    loaded
        .unwrap_or_else(|problems| panic!("{problems}"))
        .document
}

fn set(text: &str) -> PolicySet {
    PolicySet::new(vec![document("p.yaml", text)])
}

fn context<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map {
    facts.into_iter().collect()
}

fn forbids(policies: &PolicySet, program: &str) -> Option<String> {
    policies.commands().forbids(&[program.to_owned()])
}

fn rule(name: &str, field: &str, operator: &str, value: &str, action: &str, rest: &str) -> String {
    format!(
        "  - {{name: {name}, condition: {{field: {field}, operator: {operator}, value: {value}}}, action: {action}{rest}}}\n"
    )
}

#[test]
fn without_policies_all_is_allowed_and_an_empty_one_denies() {
    let none = PolicySet::new(Vec::new());
    assert!(none.evaluate(&Map::new()).allowed);
    let empty = set("name: empty\n").evaluate(&Map::new());
    assert!(!empty.allowed);
    assert_eq!(empty.reason, "No rules matched; default action applied");
}

#[test]
fn a_request_goes_through_the_same_gate_as_code_and_as_a_command() {
    let text = format!(
        "name: p\nrules:\n{}{}defaults: {{action: allow}}\ncommand_denylist: [curl, /opt/tool]\n",
        rule(
            "no-rm",
            "command",
            "contains",
            "rm -rf",
            "deny",
            ", message: no deleting"
        ),
        rule("no-import", "code", "matches", "'import\\s+os'", "deny", ""),
    );
    let policies = set(&text);
    let run = |words: &[&str]| {
        let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let request = Request {
            command: Some(&command),
            ..Request::new("a", Action::Run)
        };
        policies.decide(&request)
    };
    let code = |code: &str| {
        let request = Request {
            code: Some(code.as_bytes()),
            ..Request::new("a", Action::Execute)
        };
        policies.decide(&request)
    };
    assert_eq!(run(&["ls"]).code, "policy.default");
    assert!(run(&["ls"]).allowed);
    let denied = run(&["sh", "-c", "rm -rf /"]);
    assert_eq!(
        (denied.code.as_str(), denied.rule.as_deref()),
        ("policy.rule", Some("no-rm"))
    );
    assert_eq!(denied.reason, "no deleting");
    assert_eq!(code("import  os").rule.as_deref(), Some("no-import"));
    assert!(code("print('import')").allowed);
    for words in [["curl", "x"], ["/usr/bin/curl", "x"], ["/opt/tool", "x"]] {
        let denied = run(&words);
        assert_eq!(
            (denied.allowed, denied.code.as_str()),
            (false, "policy.command"),
            "{words:?}"
        );
    }
    assert!(run(&["/usr/bin/tool"]).allowed);
}

#[test]
fn a_rule_may_ask_what_a_look_at_the_code_found() {
    let text = format!(
        "rules:\n{}{}defaults: {{action: allow}}\n",
        rule("no-shell", "scan", "contains", "os.system", "deny", ""),
        rule("must-parse", "scan", "contains", "unparsable", "deny", ""),
    );
    let policies = set(&text);
    let decide = |language: &str, code: &str| {
        let request = Request {
            language: Some(language),
            code: Some(code.as_bytes()),
            ..Request::new("a", Action::Execute)
        };
        policies.decide(&request).rule
    };
    assert_eq!(decide("python", "print('os.system()')"), None);
    assert_eq!(
        decide("python", "import os as o\no.system('x')").as_deref(),
        Some("no-shell")
    );
    assert_eq!(decide("python", "print 'x'").as_deref(), Some("must-parse"));
    assert_eq!(decide("bash", "os.system('x')"), None);
}

#[test]
fn with_an_allowlist_no_other_command_runs() {
    let policies = set("defaults: {action: allow}\ncommand_allowlist: [python3]\n");
    assert_eq!(forbids(&policies, "/usr/bin/python3"), None);
    let reason = forbids(&policies, "ls").expect("forbidden");
    assert_eq!(
        reason,
        "`ls` is not on the command allowlist of policy `unnamed`"
    );
}

#[test]
fn a_denied_program_is_denied_however_it_is_written() {
    let policies = set("defaults: {action: allow}\ncommand_denylist: [curl, /usr/bin/wget]\n");
    for program in [
        "curl",
        "/opt/curl",
        "./curl",
        "/usr/bin/wget",
        "wget",
        "//usr/./bin/wget",
        "/usr/lib/../bin/wget",
    ] {
        assert!(forbids(&policies, program).is_some(), "{program}");
    }
    for program in ["/opt/wget", "curlew", "ls", "/usr/bin/curl/x"] {
        assert_eq!(forbids(&policies, program), None, "{program}");
    }
    // A name on an allowlist does not vouch for another file, nor a file for a name.
    let policies = set("defaults: {action: allow}\ncommand_allowlist: [/usr/bin/ls]\n");
    assert_eq!(forbids(&policies, "/usr/bin/ls"), None);
    assert!(forbids(&policies, "ls").is_some() && forbids(&policies, "/tmp/ls").is_some());
}

#[test]
fn an_error_denies_and_says_which_rule() {
    let text = format!(
        "name: p\nrules:\n{}defaults: {{action: allow}}\n",
        rule("odd", "agent_id", "gt", "5", "allow", "")
    );
    let decision = set(&text).decide(&Request::new("a", Action::Execute));
    assert_eq!(
        (decision.allowed, decision.code.as_str()),
        (false, "policy.error")
    );
    assert_eq!(
        decision.reason,
        "Policy evaluation error \u{2014} access denied (fail closed): rule `odd` of policy `p`: \
         text and an integer have no order"
    );
}

#[test]
fn a_search_that_takes_too_long_denies() {
    let text = format!(
        "rules:\n{}defaults: {{action: allow}}\n",
        rule("slow", "code", "matches", "'^(?=a)(a|a)*$'", "deny", "")
    );
    let code = format!("{}!", "a".repeat(50));
    let answer = set(&text).evaluate(&context([("code", code.as_str())]));
    assert!(!answer.allowed);
    assert!(answer.error.expect("an error").contains("too many steps"));
}

#[test]
fn of_several_documents_the_first_default_counts() {
    let open = document("a.yaml", "name: a\ndefaults: {action: allow}\n");
    let closed = document(
        "b.yaml",
        &format!(
            "name: b\nrules:\n{}",
            rule("r", "x", "eq", "1", "deny", ", priority: 5")
        ),
    );
    let policies = PolicySet::new(vec![open.clone(), closed.clone()]);
    assert!(policies.evaluate(&Map::new()).allowed);
    let mut facts = Map::new();
    facts.insert("x", 1);
    let answer = policies.evaluate(&facts);
    assert_eq!(
        (answer.allowed, answer.policy.as_deref()),
        (false, Some("b"))
    );
    assert!(
        !PolicySet::new(vec![closed, open])
            .evaluate(&Map::new())
            .allowed
    );
}

mod folders {
    use super::*;

    fn chain(texts: &[&str]) -> Vec<Arc<Document>> {
        texts
            .iter()
            .map(|text| document("governance.yaml", text))
            .collect()
    }

    fn answer(texts: &[&str], path: &str) -> Option<(bool, Option<String>)> {
        let policies = PolicySet::in_directory(&chain(texts), path)?;
        let answer = policies.evaluate(&context([("code", "x"), ("path", path)]));
        Some((answer.allowed, answer.matched_rule))
    }

    #[test]
    fn a_lower_rule_takes_the_place_of_a_higher_one_only_if_it_says_so() {
        let root = format!("rules:\n{}", rule("r", "code", "eq", "x", "allow", ""));
        let plain = format!(
            "rules:\n{}",
            rule("r", "code", "eq", "x", "deny", ", priority: 9")
        );
        let over = format!(
            "rules:\n{}",
            rule("r", "code", "eq", "x", "deny", ", override: true")
        );
        assert_eq!(
            answer(&[&root, &plain], "a"),
            Some((true, Some("r".into())))
        );
        assert_eq!(
            answer(&[&root, &over], "a"),
            Some((false, Some("r".into())))
        );
    }

    #[test]
    fn a_denial_above_stays_a_denial_and_a_block_does_not() {
        let deny = format!("rules:\n{}", rule("r", "code", "eq", "x", "deny", ""));
        let block = format!("rules:\n{}", rule("r", "code", "eq", "x", "block", ""));
        let over = format!(
            "rules:\n{}",
            rule(
                "r",
                "code",
                "eq",
                "x",
                "allow",
                ", override: true, priority: 99"
            )
        );
        assert_eq!(
            answer(&[&deny, &over], "a"),
            Some((false, Some("r".into())))
        );
        assert_eq!(
            answer(&[&block, &over], "a"),
            Some((true, Some("r".into())))
        );
    }

    #[test]
    fn what_does_not_inherit_cuts_off_what_is_above() {
        let root = format!("rules:\n{}", rule("r", "code", "eq", "x", "deny", ""));
        let cut = "inherit: false\ndefaults: {action: allow}\n";
        assert_eq!(answer(&[&root, cut], "a"), Some((true, None)));
        // Also when its own scope is another.
        let cut = "inherit: false\nscope: docs/*\n";
        assert_eq!(answer(&[&root, cut], "src/a"), None);
    }

    #[test]
    fn the_lowest_default_counts_among_those_in_scope() {
        let root = "defaults: {action: deny}\n";
        let src = "scope: src/*\ndefaults: {action: allow}\n";
        assert_eq!(answer(&[root, src], "src/a/b.py"), Some((true, None)));
        assert_eq!(answer(&[root, src], "docs/a.md"), Some((false, None)));
    }
}

#[test]
fn an_explanation_names_every_rule_and_what_would_change_the_answer() {
    let text = format!(
        "name: p\nrules:\n{}{}{}{}defaults: {{action: allow, max_memory_mb: 64}}\n",
        rule("a", "tool_name", "eq", "fetch", "allow", ", priority: 3"),
        rule("b", "agent_id", "in", "[x, y]", "allow", ", priority: 2"),
        rule(
            "c",
            "code",
            "contains",
            "subprocess",
            "deny",
            ", priority: 1"
        ),
        rule("d", "code", "contains", "eval", "deny", ""),
    );
    let policies = set(&text);
    let facts = context([("agent_id", "z"), ("code", "import subprocess")]);
    let explanation = policies.explain(&facts);
    assert!(!explanation.answer.allowed);
    let told: Vec<_> = (explanation.considered.iter())
        .map(|considered| (considered.outcome, considered.why.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Outcome::Missing, "`tool_name` is not in the context"),
            (
                Outcome::NoMatch,
                "`agent_id` is `z`, which is not in `['x', 'y']`"
            ),
            (Outcome::Match, "`code` contains `subprocess`"),
            (Outcome::NotReached, "a rule before it decided"),
        ]
    );
    let changes: Vec<&str> = explanation
        .flips
        .iter()
        .map(|flip| flip.change.as_str())
        .collect();
    assert_eq!(
        changes,
        [
            "if `code` did not contain `subprocess`",
            "if rule `c` (p.yaml:5) were not in the policy",
            "if `tool_name` were `fetch`",
        ]
    );
    assert!(explanation.flips.iter().all(|flip| flip.answer.allowed));
    let memory = (explanation.effective.iter())
        .find(|effective| effective.name == "max_memory_mb")
        .expect("known");
    assert_eq!(memory.value, Value::Int(64));
    assert_eq!(
        memory.from.as_ref().map(ToString::to_string).as_deref(),
        Some("p.yaml:7")
    );
    let cpu = (explanation.effective.iter()).find(|effective| effective.name == "max_cpu");
    assert_eq!(cpu.expect("known").from, None);
}

#[test]
fn a_denial_by_default_is_flipped_by_a_rule_or_the_default() {
    let text = format!(
        "name: p\nrules:\n{}",
        rule("a", "tool_name", "in", "[fetch]", "allow", "")
    );
    let explanation = set(&text).explain(&context([("code", "x")]));
    let changes: Vec<&str> = explanation
        .flips
        .iter()
        .map(|flip| flip.change.as_str())
        .collect();
    assert_eq!(
        changes,
        [
            "if policy `p` said `defaults.action: allow`",
            "if `tool_name` were `fetch`"
        ]
    );
}

#[test]
fn of_several_limits_the_strictest_is_effective() {
    let a = document("a.yaml", "defaults: {max_memory_mb: 64, max_cpu: 2}\n");
    let b = document("b.yaml", "defaults: {max_memory_mb: 32}\n");
    let effective = PolicySet::new(vec![a, b]).effective();
    let find = |name: &str| {
        effective
            .iter()
            .find(|one| one.name == name)
            .expect("known")
    };
    assert_eq!(find("max_memory_mb").value, Value::Int(32));
    assert_eq!(
        find("max_memory_mb")
            .from
            .as_ref()
            .expect("given")
            .file
            .as_ref(),
        "b.yaml"
    );
    assert_eq!(find("max_cpu").value, Value::Float(2.0));
}

#[test]
fn a_diff_says_what_may_newly_be_done() {
    let before = format!(
        "name: p\nrules:\n{}{}defaults: {{action: allow, max_memory_mb: 64, timeout_seconds: 10}}\n\
         network_allowlist: ['*.a.org', b.org]\ntool_allowlist: [x]\ncommand_denylist: [curl, ssh]\n",
        rule("no-sub", "code", "contains", "subprocess", "deny", ""),
        rule("no-tool", "tool_name", "not_in", "[x]", "deny", ""),
    );
    let after = format!(
        "name: p\nrules:\n{}{}defaults: {{action: allow, max_memory_mb: 128, timeout_seconds: 5}}\n\
         network_allowlist: [c.a.org, d.org]\ntool_allowlist: [x, y]\ncommand_denylist: [ssh]\nwaive: [cpu]\n\
         env: {{A: b}}\n",
        rule("no-tool", "tool_name", "not_in", "[x, y]", "deny", ""),
        rule("no-eval", "code", "contains", "eval", "deny", ""),
    );
    let (before, after) = (set(&before), set(&after));
    let changes = diff(&before, &after);
    let told = |direction: Direction| -> Vec<&str> {
        let changes = changes
            .iter()
            .filter(|change| change.direction == direction);
        changes.map(|change| change.message.as_str()).collect()
    };
    assert_eq!(
        told(Direction::Looser),
        [
            "denied by rule `no-sub` before, allowed by the default now",
            "denied by rule `no-tool` before, allowed by the default now",
            "`max_memory_mb` changes from 64 to 128",
            "host `d.org` may be reached",
            "tool `y` may be called",
            "command `curl` may be run",
            "control `cpu` may be missing",
        ]
    );
    assert_eq!(
        told(Direction::Tighter),
        [
            "allowed by the default before, denied by rule `no-eval` now",
            "`timeout_seconds` changes from 10 to 5",
            "host `*.a.org` may no longer be reached",
            "host `b.org` may no longer be reached",
        ]
    );
    assert_eq!(told(Direction::Changed), ["variable `A` is set"]);
    assert!(diff(&before, &before).is_empty());
}

#[test]
fn cases_tell_what_differs_and_what_is_wrong_with_them() {
    let policies = set("name: p\ndefaults: {action: allow}\n");
    let cases = "cases:\n  - context: {a: 1}\n    expect: deny\n  - {name: x, context: {}, expect: {allowed: true, rule: r}}\n";
    let results = Cases::load("c.yaml", cases).expect("valid").run(&policies);
    assert_eq!(results[0].name, "case 1");
    assert_eq!(
        results[0].differences,
        ["`allowed` is True, expected False"]
    );
    assert_eq!(results[1].differences, ["`rule` is None, expected 'r'"]);
    let bad = "cases:\n  - {context: 1, expect: maybe}\n  - {expect: {colour: red}}\n";
    let problems = Cases::load("c.yaml", bad).expect_err("wrong");
    assert_eq!(problems.errors().count(), 4, "{problems}");
}

#[test]
fn the_default_that_counts_comes_from_the_document_that_counts() {
    // Neither has a name to be told apart by.
    let (a, b) = (
        document("a.yaml", "description: closed\n"),
        document("b.yaml", "defaults: {action: allow, max_tokens: 10}\n"),
    );
    let effective = PolicySet::new(vec![a.clone(), b.clone()]).effective();
    let of = |name| effective.iter().find(|known| known.name == name).unwrap();
    assert_eq!(of("action").value, Value::from("deny"));
    assert_eq!(of("action").from, None);
    let tokens = of("max_tokens");
    assert_eq!((&tokens.value, tokens.enforced), (&Value::Int(10), false));
    assert_eq!(tokens.from.as_ref().unwrap().to_string(), "b.yaml:1");
    let directory = PolicySet::in_directory(&[a, b], "x").unwrap().effective();
    assert_eq!(directory[0].value, Value::from("allow"));
    assert_eq!(directory[0].from.as_ref().unwrap().to_string(), "b.yaml:1");
}

fn with_rules(rules: &str, rest: &str) -> String {
    format!("name: p\nrules:\n{rules}{rest}")
}

#[test]
fn an_approval_is_a_third_answer() {
    let text = with_rules(
        &(rule(
            "ask",
            "code",
            "contains",
            "pip",
            "require_approval",
            ", message: careful",
        ) + &rule("never", "code", "contains", "rm", "deny", ", priority: 5")),
        "defaults: {action: allow, approval_timeout_seconds: 20}\n",
    );
    let policies = set(&text);
    let decide = |code: &str| {
        let request = Request {
            code: Some(code.as_bytes()),
            ..Request::new("a", Action::Execute)
        };
        policies.decide(&request)
    };
    let asked = decide("pip install x");
    // Who knows nothing of approvals sees a denial.
    assert!(!asked.allowed && asked.needs_approval, "{asked:?}");
    assert_eq!(
        (&*asked.code, &*asked.reason),
        ("policy.approval", "careful")
    );
    assert_eq!(asked.rule.as_deref(), Some("ask"));
    let denied = decide("pip; rm");
    assert!(!denied.allowed && !denied.needs_approval, "{denied:?}");
    assert!(decide("print(1)").allowed);
    assert_eq!(policies.approval_timeout().unwrap().as_secs(), 20);
    assert_eq!(set("name: p\n").approval_timeout().unwrap().as_secs(), 300);
    let default = set("defaults: {action: require_approval}\n");
    assert!(
        default
            .decide(&Request::new("a", Action::Run))
            .needs_approval
    );
}

#[test]
fn of_several_policies_the_strictest_answer_holds_if_one_needs_approval() {
    let allow = |priority: &str| rule("allow", "code", "contains", "x", "allow", priority);
    let ask = |priority: &str| rule("ask", "code", "contains", "x", "require_approval", priority);
    let deny = |priority: &str| rule("deny", "code", "contains", "x", "deny", priority);
    let answer = |rules: &[String]| {
        let documents = rules.iter().enumerate().map(|(at, rules)| {
            let text = format!("name: p{at}\nrules:\n{rules}defaults: {{action: allow}}\n");
            document("p.yaml", &text)
        });
        let policies = PolicySet::new(documents.collect());
        let facts = context([("code", "x")]);
        let explained = policies.explain(&facts);
        let answer = policies.evaluate(&facts);
        assert_eq!(explained.answer, answer);
        let decided = explained.considered.iter().find(|rule| {
            rule.outcome == Outcome::Match && Some(&rule.rule) == answer.matched_rule.as_ref()
        });
        assert!(decided.is_some(), "the rule that decided is shown as such");
        answer.action.name()
    };
    let high = ", priority: 9";
    // Whatever the order and the priorities of the policies are.
    for (one, two) in [("", ""), (high, ""), ("", high)] {
        assert_eq!(answer(&[ask(one), allow(two)]), "require_approval");
        assert_eq!(answer(&[allow(one), ask(two)]), "require_approval");
        assert_eq!(answer(&[ask(one), deny(two)]), "deny");
        assert_eq!(answer(&[deny(one), ask(two)]), "deny");
        assert_eq!(answer(&[allow(one), ask(two), deny("")]), "deny");
    }
    // Without one, they are AGT's: the first match of all rules decides.
    assert_eq!(answer(&[allow(high), deny("")]), "allow");
    assert_eq!(answer(&[allow(""), deny(high)]), "deny");
    // Within one policy, priorities decide.
    assert_eq!(answer(&[allow(high) + &ask("")]), "allow");
    assert_eq!(answer(&[ask(high) + &deny("")]), "require_approval");
}

#[test]
fn a_lower_directory_does_not_undo_a_required_approval() {
    let parent = document(
        "governance.yaml",
        &with_rules(
            &rule("r", "code", "contains", "x", "require_approval", ""),
            "defaults: {action: allow}\n",
        ),
    );
    let merged = |action: &str| {
        let rules = rule("r", "code", "contains", "x", action, ", override: true");
        let child = document(
            "a/governance.yaml",
            &with_rules(&rules, "defaults: {action: allow}\n"),
        );
        let policies = PolicySet::in_directory(&[parent.clone(), child], "a/b").unwrap();
        policies.evaluate(&context([("code", "x")])).action.name()
    };
    assert_eq!(merged("allow"), "require_approval");
    assert_eq!(merged("audit"), "require_approval");
    assert_eq!(merged("deny"), "deny");
}

#[test]
fn agt_has_no_such_action() {
    let rules = rule("ask", "code", "contains", "x", "require_approval", "");
    for text in [
        with_rules(&rules, ""),
        "defaults: {action: require_approval}\n".into(),
    ] {
        let problems = Document::load("p.yaml", &text, Compat::Agt).unwrap_err();
        assert!(
            problems.to_string().contains("require_approval"),
            "{problems}"
        );
        // Kept with a session, it comes back as it was.
        let policies = set(&text);
        let stored = serde_json::to_string(&policies).unwrap();
        assert_eq!(
            serde_json::from_str::<PolicySet>(&stored).unwrap(),
            policies
        );
    }
    let line = serde_json::json!({
        "id": 1,
        "policies": [{"rules": [{"name": "ask", "action": "require_approval",
            "condition": {"field": "x", "operator": "eq", "value": 1}}]}],
        "context": {"x": 1},
    });
    let answer: serde_json::Value =
        serde_json::from_str(&brig_policy::eval_line(&line.to_string())).unwrap();
    assert_eq!(answer["allowed"], false);
    assert!(
        answer["reason"]
            .as_str()
            .unwrap()
            .starts_with("invalid policy")
    );
}

#[test]
fn cases_and_differences_know_the_third_answer() {
    let of = |action: &str| {
        let rules = rule("r", "code", "contains", "x", action, "");
        set(&with_rules(&rules, "defaults: {action: allow}\n"))
    };
    let cases = "cases:\n  - {context: {code: x}, expect: require_approval}\n  \
                 - {context: {code: x}, expect: deny}\n  - {context: {code: y}, expect: require_approval}\n";
    let results = Cases::load("c.yaml", cases)
        .unwrap()
        .run(&of("require_approval"));
    let passed: Vec<bool> = results
        .iter()
        .map(|result| result.differences.is_empty())
        .collect();
    // Until it is approved, it is denied.
    assert_eq!(passed, [true, true, false]);
    for (before, after, direction, words) in [
        (
            "allow",
            "require_approval",
            Direction::Tighter,
            "allowed only with approval",
        ),
        (
            "deny",
            "require_approval",
            Direction::Looser,
            "allowed only with approval",
        ),
        ("require_approval", "allow", Direction::Looser, "allowed by"),
        ("require_approval", "deny", Direction::Tighter, "denied by"),
    ] {
        let changes = diff(&of(before), &of(after));
        assert_eq!(changes.len(), 1, "{before} {after}: {changes:?}");
        assert_eq!(changes[0].direction, direction, "{before} {after}");
        assert!(changes[0].message.contains(words), "{}", changes[0].message);
    }
}

#[test]
fn digests_of_policies_without_the_new_fields_stay() {
    let plain = set("name: p\n");
    let defaults =
        set("name: p\nrecord_tool_arguments: false\ndefaults: {approval_timeout_seconds: 300}\n");
    assert_eq!(plain.digest(), defaults.digest());
    for other in [
        "record_tool_arguments: true\n",
        "defaults: {approval_timeout_seconds: 299}\n",
    ] {
        assert_ne!(
            plain.digest(),
            set(&format!("name: p\n{other}")).digest(),
            "{other}"
        );
    }
}
