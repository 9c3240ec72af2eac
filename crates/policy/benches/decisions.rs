//! How long a decision takes, beside the targets. `cargo bench -p brig-policy`; with `--check` a
//! missed target is a failure.

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use brig_policy::{Compat, Document, Map, PolicySet};

struct Case {
    name: &'static str,
    /// What the evaluator of AGT 4.0.0 took, in microseconds.
    agt: f64,
    target: f64,
    run: Box<dyn Fn()>,
}

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    let cases = [
        contains("10 contains rules, no match", 10, 20.0, 0.5),
        contains("100 contains rules, no match", 100, 158.0, 2.0),
        contains("1000 contains rules, no match", 1000, 1600.0, 10.0),
        decision("100 pattern rules, no match", &patterns(100), 232.0, 5.0),
        decision(
            "100 loose pattern rules, no match",
            &loose_patterns(100),
            232.0,
            5.0,
        ),
        decision(
            "100 rules, the first matches",
            &first_matches(100),
            18.4,
            2.0,
        ),
        load("load 100 contains rules", &rules(100), 86_000.0, 1000.0),
        load("load 100 pattern rules", &patterns(100), 86_000.0, 1000.0),
    ];
    println!(
        "{:36} {:>10} {:>10} {:>10} {:>8}",
        "", "best µs", "target µs", "AGT µs", "times"
    );
    let mut missed = false;
    for case in cases {
        let took = measure(&case.run).as_secs_f64() * 1e6;
        let late = took > case.target;
        missed |= late;
        println!(
            "{:36} {took:10.3} {:10.1} {:10.1} {:7.0}x{}",
            case.name,
            case.target,
            case.agt,
            case.agt / took,
            if late { "  missed" } else { "" }
        );
    }
    if check && missed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The best of many batches: all else is what the machine did beside it.
fn measure(run: &dyn Fn()) -> Duration {
    run();
    let start = Instant::now();
    let mut batch = 1_u32;
    while start.elapsed() < Duration::from_millis(20) {
        (0..batch).for_each(|_| run());
        batch *= 2;
    }
    let batch = (batch / 32).max(1);
    let times = (0..201).map(|_| {
        let start = Instant::now();
        (0..batch).for_each(|_| run());
        start.elapsed() / batch
    });
    times.min().unwrap_or_default()
}

/// About 700 bytes of Python that no rule below matches.
fn code() -> String {
    let mut code = String::from("import math\n\n");
    for i in 0..16 {
        let _ = writeln!(
            code,
            "def area_{i}(radius):\n    return math.pi * radius ** {i}"
        );
    }
    code.truncate(700);
    code
}

fn policy(rules: &str) -> String {
    format!("version: \"1.0\"\nname: bench\nrules:\n{rules}defaults:\n  action: allow\n")
}

fn list(count: usize, operator: &str, value: impl Fn(usize) -> String) -> String {
    let mut rules = String::new();
    for i in 0..count {
        let _ = write!(
            rules,
            "  - name: rule-{i}\n    condition:\n      field: code\n      operator: {operator}\n      value: '{}'\n    action: deny\n    priority: {}\n    message: blocked by rule {i}\n",
            value(i),
            i % 7
        );
    }
    policy(&rules)
}

fn rules(count: usize) -> String {
    list(count, "contains", |i| format!("forbidden_call_{i}("))
}

fn patterns(count: usize) -> String {
    list(count, "matches", |i| {
        format!(r"\bforbidden_{i}\s*\(.*shell\s*=\s*True")
    })
}

/// Without any text that could be looked for first.
fn loose_patterns(count: usize) -> String {
    list(count, "matches", |i| {
        format!(r"[A-Z]{{3}}\d{{{}}}[xyz]+", i % 10 + 1)
    })
}

fn first_matches(count: usize) -> String {
    list(count, "contains", |_| "import math".into())
}

fn contains(name: &'static str, count: usize, agt: f64, target: f64) -> Case {
    decision(name, &rules(count), agt, target)
}

fn decision(name: &'static str, policy: &str, agt: f64, target: f64) -> Case {
    let loaded = Document::load("bench.yaml", policy, Compat::Strict).expect("a valid policy");
    let policies = PolicySet::new(vec![loaded.document]);
    let code = code();
    let facts = [
        ("agent_id", "agent-1"),
        ("action", "execute"),
        ("code", &code),
    ];
    let context: Map = facts.into_iter().collect();
    Case {
        name,
        agt,
        target,
        run: Box::new(move || {
            black_box(policies.evaluate(black_box(&context)));
        }),
    }
}

fn load(name: &'static str, policy: &str, agt: f64, target: f64) -> Case {
    let policy = policy.to_owned();
    Case {
        name,
        agt,
        target,
        run: Box::new(move || {
            let loaded = Document::load("bench.yaml", black_box(&policy), Compat::Strict);
            let document = loaded.expect("a valid policy").document;
            black_box(PolicySet::new(vec![document]));
        }),
    }
}
