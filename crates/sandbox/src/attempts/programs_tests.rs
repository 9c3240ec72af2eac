use super::*;

fn asked(program: &str, code: &str, rule: Option<&str>, arguments: &[&str]) -> Command {
    Command {
        allowed: !["command.denied", "command.not-allowed"].contains(&code),
        code: code.into(),
        rule: rule.map(str::to_owned),
        program: program.into(),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        ..Command::default()
    }
}

fn counted(rows: &[Command]) -> u64 {
    let times = rows.iter().filter_map(|row| row.times);
    times.map(|times| times.count).sum()
}

#[test]
fn attempts_that_fail_do_not_hide_one_that_starts() {
    let mut programs = Programs::default();
    let failed = asked("/usr/bin/env", "command.failed", None, &["env"]);
    let apart = (0..25).filter(|_| programs.attempted(&failed)).count();
    assert_eq!(apart, BURST as usize, "the control: these are too many");
    let started = asked("/usr/bin/env", "command.allowed", None, &["env"]);
    assert!(programs.attempted(&started));
    let (listed, omitted) = programs.listed(25);
    let counts: Vec<u64> = listed
        .iter()
        .map(|row| counted(std::slice::from_ref(row)))
        .collect();
    assert_eq!((counts, omitted), (vec![25, 1], 0));
    assert_eq!(counted(&programs.unrecorded_totals()), 25);
}

#[test]
fn starts_that_no_rule_covers_do_not_hide_an_observed_one() {
    let mut programs = Programs::default();
    let version = asked(
        "/usr/bin/git",
        "command.allowed",
        None,
        &["git", "--version"],
    );
    let apart = (0..2000).filter(|_| programs.attempted(&version)).count();
    assert!(apart < 30, "the control: these are too many");
    let push = asked(
        "/usr/bin/git",
        "command.observed",
        Some("git push"),
        &["git", "push"],
    );
    assert!(programs.attempted(&push));
    // Nor one with other arguments, without any rule.
    assert!(programs.attempted(&asked(
        "/usr/bin/git",
        "command.allowed",
        None,
        &["git", "gc"]
    )));
    assert_eq!(programs.listed(25).0.len(), 3);
}

#[test]
fn no_number_of_names_hides_what_another_rule_covers() {
    let mut programs = Programs::default();
    for n in 0..10_000 {
        let n = n.to_string();
        let one = asked(
            &format!("/tmp/n{n}/tool"),
            "command.denied",
            Some("tool"),
            &["tool", &n],
        );
        programs.attempted(&one);
        programs.attempted(&asked(
            &format!("/tmp/{n}"),
            "command.allowed",
            None,
            &["x"],
        ));
        programs.attempted(&asked(&format!("/tmp/{n}"), "command.failed", None, &["x"]));
        programs.attempted(&asked(
            &format!("/tmp/{n}"),
            "command.not-allowed",
            None,
            &["x"],
        ));
    }
    let last = asked("/tmp/one-more", "command.allowed", None, &["x"]);
    assert!(!programs.attempted(&last), "the control: there is no room");
    let curl = asked(
        "/usr/bin/curl",
        "command.denied",
        Some("curl"),
        &["curl", "https://x"],
    );
    assert!(programs.attempted(&curl), "its own record");
    let (listed, omitted) = programs.listed(25);
    let found = listed.iter().find(|row| row.program == "/usr/bin/curl");
    assert_eq!(found.map(|row| row.arguments.len()), Some(2));
    assert_eq!(counted(&listed) + omitted, 40_002, "all are counted");
    for what in [OTHER_PATHS, OTHER_PROGRAMS] {
        let shared = programs.unrecorded_totals();
        let shared = shared
            .iter()
            .filter(|row| row.detail.as_deref() == Some(what));
        assert!(shared.count() > 0, "{what}");
    }
    assert!(
        programs.rows.len() < 3 * (NAMES + 2) + 2 * (ALIKE + 2),
        "{}",
        programs.rows.len()
    );
}

#[test]
fn a_name_has_a_row_before_any_has_a_second_one() {
    let mut programs = Programs::default();
    for n in 0..2 * MORE {
        for argument in 0..2 * ALIKE {
            let (name, argument) = (format!("/tmp/n{}", n % 100), format!("{n} {argument}"));
            programs.attempted(&asked(&name, "command.allowed", None, &[&argument]));
        }
    }
    let full = programs.rows.len();
    assert!(full <= 100 + 100 + MORE, "{full}");
    let other = asked("/usr/bin/id", "command.allowed", None, &["id"]);
    assert!(programs.attempted(&other));
    let (listed, omitted) = programs.listed(200);
    assert!(listed.iter().any(|row| row.program == "/usr/bin/id"));
    assert_eq!(counted(&listed) + omitted, (4 * MORE * ALIKE) as u64 + 1);
}

#[test]
fn what_is_held_is_bounded_under_any_number_of_rules() {
    let mut programs = Programs::default();
    let long = "x".repeat(4000);
    for rule in 0..1000 {
        let rule = format!("rule{rule}");
        for n in 0..20 {
            let one = asked(
                &format!("/tmp/{n}-{rule}"),
                "command.denied",
                Some(&rule),
                &[&long],
            );
            let apart = programs.attempted(&one);
            assert!(apart || n > 0, "the first of each rule has its own record");
        }
    }
    assert!(programs.rows.len() <= UNDER_RULES + 2 * 1000);
    let held: usize = programs
        .rows
        .iter()
        .map(|row| row.command.arguments.concat().len())
        .sum();
    assert!(
        held <= HELD + 1000 * long.len() + 3 * programs.rows.len(),
        "{held}"
    );
}
