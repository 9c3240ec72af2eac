//! A request as text. All of it may come from an agent, so every line is escaped.

use std::fmt::Write;

use brig_sandbox::approvals::{ApprovalRequest, Subject, SubjectKind};
use jiff::Timestamp;

use crate::{escape, terminal};

/// Characters of a line of a list.
const SUMMARY: usize = 60;

/// Such as "the call of tool `send` by agent `a`".
pub(crate) fn what(request: &ApprovalRequest) -> String {
    let name = escape::line(&short(&request.subject.name));
    match request.subject.kind {
        SubjectKind::Code => format!("{name} code of agent `{}`", request.agent),
        SubjectKind::Command => format!("the command `{name}` of agent `{}`", request.agent),
        SubjectKind::Tool => format!("the call of tool `{name}` by agent `{}`", request.agent),
        kind => format!("{} `{name}` of agent `{}`", kind.name(), request.agent),
    }
}

/// One short line.
pub(crate) fn summary(subject: &Subject) -> String {
    let text = match subject.kind {
        SubjectKind::Command => subject.text.clone(),
        _ => format!("{} {}", subject.name, subject.text),
    };
    short(&text)
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn seconds_left(request: &ApprovalRequest) -> u64 {
    let passed = Timestamp::now().duration_since(request.asked);
    let passed = u64::try_from(passed.as_secs()).unwrap_or(0);
    request.timeout.as_secs().saturating_sub(passed)
}

pub(crate) fn left(request: &ApprovalRequest) -> String {
    format!("{} s", seconds_left(request))
}

/// All of it.
pub(crate) fn whole(request: &ApprovalRequest) -> String {
    let mut out = head(request);
    lines(&request.subject, usize::MAX, &mut out);
    out
}

/// The first lines, and whether there are more.
pub(crate) fn beginning(request: &ApprovalRequest, most: usize) -> (String, bool) {
    let mut out = head(request);
    let more = lines(&request.subject, most, &mut out);
    (out, more)
}

fn head(request: &ApprovalRequest) -> String {
    let rule = match &request.rule {
        Some(rule) => format!("{rule}: {}", request.message),
        None => request.message.clone(),
    };
    let rows = [
        ("agent", request.agent.to_string()),
        ("session", request.session.to_string()),
        ("run", request.execution.to_string()),
        ("rule", rule),
        (
            "kind",
            format!(
                "{} {}",
                request.subject.kind.name(),
                short(&request.subject.name)
            ),
        ),
        ("digest", request.subject.digest.clone()),
        ("left", left(request)),
    ];
    let mut out = String::new();
    for (name, value) in rows {
        let _ = writeln!(out, "{name:8} {}", escape::line(&value));
    }
    if !request.subject.arguments.is_empty() {
        let arguments = brig_policy::command_line(&request.subject.arguments);
        out.push_str("args\n");
        marked(&escape::line(&arguments), &mut out);
    }
    out
}

/// Each line is marked, so that none can be taken for one of Brig's own.
fn lines(subject: &Subject, most: usize, out: &mut String) -> bool {
    let all: Vec<&str> = subject.text.split('\n').collect();
    for line in all.iter().take(most) {
        marked(&escape::line(line), out);
    }
    let more = all.len().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(out, "  … {more} more lines");
    }
    if !subject.is_whole() {
        let left = subject.bytes - subject.text.len();
        let _ = writeln!(out, "  … {left} more bytes, which cannot be shown here");
    }
    more > 0
}

/// A line in rows that no terminal breaks: the rest of a long one would begin like a line of Brig's own.
fn marked(line: &str, out: &mut String) {
    let most = usize::from(terminal::size().columns)
        .saturating_sub(6)
        .max(20);
    let (mut row, mut width, mut mark) = (String::new(), 0, '|');
    for c in line.chars() {
        // Other characters may be two columns wide.
        let columns = if c.is_ascii() { 1 } else { 2 };
        if width + columns > most {
            let _ = writeln!(out, "  {mark} {row}");
            (width, mark) = (0, '↳');
            row.clear();
        }
        row.push(c);
        width += columns;
    }
    let _ = writeln!(out, "  {mark} {row}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::escape::is_harmful;

    fn request(name: &str, text: &str) -> ApprovalRequest {
        let request = json!({
            "id": "0".repeat(32),
            "agent": "a",
            "session": "s",
            "execution": "e",
            "subject": {
                "kind": "tool",
                "name": name,
                "text": text,
                "bytes": text.len(),
                "arguments": ["\u{1b}]0;x\u{7}"],
                "digest": "sha256:0",
            },
            "rule": "r\u{9b}2J",
            "message": "m\nApprove? [y/N] y",
            "asked": Timestamp::now(),
            "timeout": Duration::from_secs(300),
        });
        serde_json::from_value(request).expect("a request")
    }

    #[test]
    fn nothing_that_is_shown_drives_the_terminal_or_looks_like_brig() {
        let hostile = request(
            "send\u{1b}[2J\nrule     fake",
            "a\u{202e}b\r\nagent    root\n\u{1b}[8m",
        );
        let shown = whole(&hostile);
        assert!(
            shown.chars().all(|c| c == '\n' || !is_harmful(c)),
            "{shown:?}"
        );
        let own = shown.lines().filter(|line| !line.starts_with("  | "));
        let names: Vec<&str> = own
            .map(|line| line.split(' ').next().expect("a word"))
            .collect();
        let expected = [
            "agent", "session", "run", "rule", "kind", "digest", "left", "args",
        ];
        assert_eq!(names, expected, "{shown}");
        assert!(!what(&hostile).contains('\n'));
    }

    #[test]
    fn a_long_line_does_not_continue_like_a_line_of_its_own() {
        let fake = format!("{}agent    root", " ".repeat(500));
        let (name, text) = (format!("/x{fake}"), format!("{fake}日本{fake}"));
        let shown = whole(&request(&name, &text));
        let columns = usize::from(terminal::size().columns);
        let width = |line: &str| {
            line.chars()
                .map(|c| if c.is_ascii() { 1 } else { 2 })
                .sum::<usize>()
        };
        let long = shown.lines().find(|line| width(line) > columns);
        assert_eq!(long, None);
        assert_eq!(
            shown
                .lines()
                .filter(|line| line.starts_with("agent"))
                .count(),
            1
        );
    }

    #[test]
    fn what_is_left_out_is_told() {
        let long = request("send", &"x\n".repeat(99));
        let (shown, more) = beginning(&long, 40);
        assert!(more && shown.contains("… 60 more lines"), "{shown}");
        assert!(!beginning(&request("send", "{}"), 40).1);
        let mut cut = request("send", "{}");
        cut.subject.bytes = 100;
        assert!(whole(&cut).contains("98 more bytes"));
    }
}
