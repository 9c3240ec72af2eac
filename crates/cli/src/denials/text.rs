//! The summary of denials on stderr: short, whatever was requested.

use brig_egress::Rule;
use brig_sandbox::SessionId;

use super::{Denials, Denied, Kind, RunKind, always, once};
use crate::failure;
use crate::log::{self, Level};
use crate::{launch, units};

/// How many lines, names on a line, and rules in a hint.
const LINES: usize = 4;
const NAMES: usize = 5;
const RULES: usize = 5;

pub(super) fn show(denials: &Denials, kind: RunKind<'_>) {
    if log::shows(Level::Info) {
        let summary = Summary::of(denials, kind);
        summary.denied.iter().for_each(|line| failure::denied(line));
        summary.hints.iter().for_each(|line| failure::hint(line));
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    denied: Vec<String>,
    hints: Vec<String>,
}

impl Summary {
    fn of(denials: &Denials, kind: RunKind<'_>) -> Self {
        let groups = groups(&denials.all);
        let mut denied: Vec<String> = groups.iter().take(LINES).map(|group| line(group)).collect();
        let rest: u64 = (groups.iter().skip(LINES).flatten())
            .map(|denied| denied.times)
            .sum();
        let more = rest.saturating_add(denials.more);
        if more > 0 {
            denied.push(format!(
                "{} more; `brig audit show` lists what is recorded",
                units::count(more, "time")
            ));
        }
        Self {
            denied,
            hints: hints(&denials.all, kind),
        }
    }
}

/// Those of one kind with the same reason are on one line.
fn groups(all: &[Denied]) -> Vec<Vec<&Denied>> {
    let mut groups: Vec<Vec<&Denied>> = Vec::new();
    for denied in all {
        let same = |group: &&mut Vec<&Denied>| {
            (group.first())
                .is_some_and(|first| (first.kind, &first.reason) == (denied.kind, &denied.reason))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(denied),
            None => groups.push(vec![denied]),
        }
    }
    groups
}

/// `pypi.org:443 (3 times), files.pythonhosted.org:443: no rule allows them`
fn line(group: &[&Denied]) -> String {
    let mut names: Vec<String> = group
        .iter()
        .take(NAMES)
        .map(|denied| name(denied))
        .collect();
    if let more @ 1.. = group.len().saturating_sub(NAMES) {
        names.push(format!("{more} more"));
    }
    let names = match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    let label = match (group.first().map(|denied| denied.kind), group.len()) {
        (None | Some(Kind::Network), _) => "",
        (Some(Kind::Execution), _) => "execution ",
        (Some(Kind::Command), 1) => "command ",
        (Some(Kind::Command), _) => "commands ",
        (Some(Kind::Tool), 1) => "tool ",
        (Some(Kind::Tool), _) => "tools ",
    };
    let reason = group.first().map_or("", |denied| &denied.reason);
    let reason = match group.len() {
        0 | 1 => reason.to_owned(),
        _ => reason.replace(" allows it", " allows them"),
    };
    format!("{label}{names}: {reason}")
}

fn name(denied: &Denied) -> String {
    let what = launch::shortened(&denied.what);
    let what = match denied.kind {
        Kind::Network => what,
        Kind::Execution | Kind::Command | Kind::Tool => format!("`{what}`"),
    };
    match denied.times {
        1 => what,
        times => format!("{what} ({times} times)"),
    }
}

fn distinct(all: impl Iterator<Item = Rule>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for rule in all {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

fn hints(all: &[Denied], kind: RunKind<'_>) -> Vec<String> {
    let rules = distinct(all.iter().filter_map(|denied| denied.allow.clone()));
    let lasting = distinct(all.iter().flat_map(Denied::lasting));
    let mut hints = Vec::new();
    match rules.len() {
        0 => {}
        1..=RULES => {
            let here = match kind {
                RunKind::Run => "to allow it for this run, add",
                RunKind::Session(_) => "to allow it for this session",
            };
            let here = match rules.len() {
                1 => here.to_owned(),
                _ => here.replace(" it ", " them "),
            };
            hints.push(format!("{here}: {}", once(kind, &rules)));
            hints.push(format!("for every run: {}", always(&lasting)));
        }
        _ => hints.push(format!(
            "`brig sandbox suggest{}` lists the hosts that would have to be allowed, and with \
             --apply allows them",
            session_word(kind)
        )),
    }
    let remedies = all.iter().filter_map(|denied| denied.remedy.as_ref());
    hints.extend(remedies.take(1).cloned());
    if all.iter().any(|denied| denied.kind == Kind::Command) {
        hints.push(
            "only the policy can allow a command; `brig commands scan --policy FILE` lists what it \
             allows"
                .into(),
        );
    }
    hints
}

fn session_word(kind: RunKind<'_>) -> String {
    match kind {
        RunKind::Run => String::new(),
        RunKind::Session(id) => format!(" {}", SessionId::as_str(id)),
    }
}

#[cfg(test)]
mod tests {
    use brig_audit::{Command, Egress, Times};
    use brig_sandbox::Attempted;
    use jiff::Timestamp;

    use super::*;

    fn egress(host: &str, port: u16, code: &str, count: u64) -> Egress {
        Egress {
            allowed: false,
            code: code.into(),
            protocol: "connect".into(),
            host: host.into(),
            port,
            times: Some(Times {
                count,
                first: Timestamp::UNIX_EPOCH,
                last: Timestamp::UNIX_EPOCH,
            }),
            ..Egress::default()
        }
    }

    fn summary(egress: Vec<Egress>) -> Summary {
        let mut attempted = Attempted::default();
        attempted.totals.denied = egress.iter().map(|one| one.times.unwrap().count).sum();
        attempted.egress = egress;
        Summary::of(&Denials::of(&attempted), RunKind::Run)
    }

    #[test]
    fn the_usual_case_takes_three_lines() {
        let summary = summary(vec![
            egress("pypi.org", 443, "network.no-rule", 3),
            egress("pypi.org", 0, "network.no-rule", 9),
            egress("files.pythonhosted.org", 0, "network.no-rule", 1),
        ]);
        assert_eq!(
            summary.denied,
            ["pypi.org:443 (3 times) and files.pythonhosted.org: no rule allows them"]
        );
        assert_eq!(
            summary.hints,
            [
                "to allow them for this run, add: --allow pypi.org --allow files.pythonhosted.org",
                "for every run: brig sandbox allow pypi.org files.pythonhosted.org",
            ]
        );
    }

    #[test]
    fn each_reason_is_told_with_what_would_help() {
        let mut blocked = egress("bad.org", 443, "network.blocked", 1);
        (blocked.rule, blocked.layer) = (Some("*.org".into()), Some("user".into()));
        let mut led = egress("mirror.corp", 8080, "network.address", 1);
        led.address = Some("10.0.0.5".into());
        led.layer = Some("run".into());
        let summary = summary(vec![
            blocked,
            led,
            egress("169.254.169.254", 80, "network.address", 2),
        ]);
        assert_eq!(
            summary.denied,
            [
                "bad.org:443: blocked by `*.org` (user config)",
                "mirror.corp:8080: it resolves to 10.0.0.5, a private address that no rule names",
                "169.254.169.254:80 (2 times): a cloud metadata address that no rule names",
            ]
        );
        assert_eq!(
            summary.hints,
            [
                "to allow it for this run, add: --allow 10.0.0.5:8080",
                "for every run: brig sandbox allow mirror.corp:8080 10.0.0.5:8080",
                "brig sandbox unblock '*.org'",
            ]
        );
    }

    #[test]
    fn a_datagram_is_not_said_to_be_allowable() {
        let udp = Egress {
            protocol: "udp".into(),
            ..egress("1.1.1.1", 53, "network.no-rule", 2)
        };
        let summary = summary(vec![udp, egress("1.1.1.1", 53, "network.no-rule", 1)]);
        assert_eq!(
            summary.denied,
            [
                "1.1.1.1:53 (2 times): UDP is not forwarded, only TCP can be allowed",
                "1.1.1.1:53: no rule allows it",
            ]
        );
        assert_eq!(summary.hints.len(), 2);
    }

    #[test]
    fn a_flood_stays_short() {
        let codes = ["a", "b", "c", "d", "e", "network.no-rule"];
        let mut all = Vec::new();
        for at in 0..60 {
            let long = "x".repeat(60);
            let host = format!("{long}.{long}.{at}.example.org");
            let mut one = egress(&host, 443, codes[at % 6], 1);
            one.detail = Some(format!("detail {}", at % 6));
            all.push(one);
        }
        let mut attempted = Attempted::default();
        attempted.totals.denied = 1000;
        attempted.egress = all;
        let summary = Summary::of(&Denials::of(&attempted), RunKind::Run);
        assert_eq!(summary.denied.len(), LINES + 1);
        assert!(summary.denied.iter().all(|line| line.len() < 800));
        let last = summary.denied.last().unwrap();
        assert!(last.starts_with("960 times more"), "{last}");
        assert_eq!(summary.hints.len(), 1);
        assert!(summary.hints[0].contains("brig sandbox suggest"));
    }

    #[test]
    fn commands_and_sessions_have_hints_of_their_own() {
        let mut attempted = Attempted::default();
        attempted.egress = vec![egress("10.0.0.5", 80, "network.address", 1)];
        let command = |program: &str, argument: &str| Command {
            code: "command.denied".into(),
            rule: Some("@network".into()),
            program: program.into(),
            arguments: vec![argument.into()],
            ..Command::default()
        };
        attempted.commands = vec![
            command("curl", "x"),
            command("curl", "y"),
            command("wget", "z"),
        ];
        let id = "build".parse().unwrap();
        let summary = Summary::of(&Denials::of(&attempted), RunKind::Session(&id));
        assert_eq!(
            summary.denied,
            [
                "10.0.0.5:80: a private address that no rule names",
                "commands `curl` (2 times) and `wget`: `@network` is in the policy's \
                 `command_denylist`",
            ]
        );
        assert_eq!(
            summary.hints[0],
            "to allow it for this session: brig session network allow build 10.0.0.5:80"
        );
    }
}
