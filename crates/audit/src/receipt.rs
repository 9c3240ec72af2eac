use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Hash;
use crate::canonical;
use crate::escape;
use crate::record::{Approval, Command, Egress, Tool};

/// Characters of output that a receipt shows.
const EXCERPT: usize = 512;
/// Shorter values are too common to be looked for.
const SECRET: usize = 4;

/// What one execution was, what it was allowed, and what it did.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Receipt {
    /// Counted from 0 within the session.
    pub step: u64,
    /// The backend that ran it, such as `native`.
    pub backend: String,
    /// SHA-256 of the policy that decided.
    pub policy: Option<String>,
    /// The rule of the policy that decided. `None` if none applied.
    pub rule: Option<String>,
    /// What became of it.
    pub decision: Verdict,
    /// The stable reason code.
    pub code: String,
    /// The reason in words, without values of environment variables.
    pub reason: String,
    /// What came of the approval that the policy requires for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The trace that the request belongs to, as a W3C `traceparent`, if the caller named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// `execute` or `run`.
    pub action: String,
    /// SHA-256 of the source, or of the command with each argument ended by a NUL byte.
    pub code_digest: String,
    /// When the request was accepted, by the clock of this machine.
    pub started: Timestamp,
    /// From start to end, in microseconds. 0 if it did not run, or failed with an error.
    pub duration_us: u64,
    /// The exit code of the program; 128 + signal if a signal ended it. `None` if it did not run, or failed with
    /// an error.
    pub exit_code: Option<i32>,
    /// The signal that ended the program. `None` if it exited by itself.
    pub signal: Option<i32>,
    /// Why Brig ended it: `timeout`, `memory`, `processes`, `output`, `cancelled` or `destroyed`. `None` if it did
    /// not.
    pub kill_reason: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// One for each host, port, protocol and answer. What is not listed here has records of its own.
    pub egress: Vec<Egress>,
    /// Attempts to start programs: at most 25 rows that were allowed, and 25 that were denied.
    pub commands: Vec<Command>,
    /// Calls of tools: the first 25 that were allowed, and the first 25 that were denied.
    pub tools: Vec<Tool>,
    /// How many more there were of these.
    #[serde(default)]
    pub omitted: Omitted,
    /// All of the network, also what is not listed.
    #[serde(default)]
    pub totals: Totals,
    /// The controls that the policy requires and the operator has waived.
    pub waived: Vec<String>,
}

/// Attempts that a receipt does not list.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Omitted {
    /// Network attempts.
    pub egress: u64,
    /// Attempts to start programs.
    pub commands: u64,
    /// Calls of tools.
    pub tools: u64,
}

/// What went over the network in one execution, to the last byte.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Totals {
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// Bytes out of the sandbox.
    pub sent: u64,
    /// Bytes into the sandbox.
    pub received: u64,
}

/// How an execution ended. The first five are those of AGT's step receipts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It ran and succeeded.
    Allowed,
    /// It never began.
    DeniedByPolicy,
    /// It ran, and the network refused something that it tried.
    BlockedAtEgress,
    /// It ran too long and was ended.
    Timeout,
    /// It failed, or could not be started.
    Error,
    /// It ran, and a program that it tried to start was refused.
    CommandDenied,
    /// It was ended because of another limit: memory, processes or output.
    Limit,
    /// It was cancelled, or its sandbox was destroyed.
    Cancelled,
}

impl Verdict {
    /// Every verdict, once.
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::DeniedByPolicy,
        Self::BlockedAtEgress,
        Self::Timeout,
        Self::Error,
        Self::CommandDenied,
        Self::Limit,
        Self::Cancelled,
    ];

    /// The stable name, as in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::DeniedByPolicy => "denied-by-policy",
            Self::BlockedAtEgress => "blocked-at-egress",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::CommandDenied => "command-denied",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
        }
    }

    /// Of an execution that came to an end: what ended it counts first, then what it was denied.
    pub fn of(
        kill_reason: Option<&str>,
        success: bool,
        egress: &[Egress],
        commands: &[Command],
    ) -> Self {
        match kill_reason {
            Some("timeout") => Self::Timeout,
            Some("cancelled" | "destroyed") => Self::Cancelled,
            Some(_) => Self::Limit,
            None if egress.iter().any(|decision| !decision.allowed) => Self::BlockedAtEgress,
            None if commands.iter().any(|attempt| !attempt.allowed) => Self::CommandDenied,
            None if success => Self::Allowed,
            None => Self::Error,
        }
    }
}

/// What an execution used. All 0 if it did not run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// CPU time of all its processes, in microseconds.
    pub cpu_us: u64,
    /// The most memory at a time.
    pub peak_memory_bytes: u64,
}

/// One stream of output.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Output {
    /// All that was written, also what was not captured.
    pub bytes: u64,
    /// SHA-256 of what was captured.
    pub digest: String,
    /// The start of it, with everything escaped that could mislead a reader.
    pub excerpt: String,
    /// Whether some of it was not captured.
    pub truncated: bool,
}

impl Output {
    /// `secrets` are replaced where the output repeats them.
    pub fn of(captured: &[u8], total: u64, secrets: &[&str]) -> Self {
        Self {
            bytes: total.min(canonical::MAX),
            digest: digest(captured),
            truncated: total > captured.len() as u64,
            excerpt: excerpt(captured, total <= captured.len() as u64, secrets),
        }
    }
}

/// `sha256:` and the digest.
pub fn digest(data: &[u8]) -> String {
    format!("sha256:{}", Hash::of(data))
}

/// The digest of a command: arguments cannot run into each other.
pub fn command_digest(argv: &[String]) -> String {
    let mut bytes = Vec::new();
    for argument in argv {
        bytes.extend_from_slice(argument.as_bytes());
        bytes.push(0);
    }
    digest(&bytes)
}

fn excerpt(captured: &[u8], whole: bool, secrets: &[&str]) -> String {
    // A secret may lie across the end of the excerpt.
    let longest = secrets.iter().map(|secret| secret.len()).max();
    let enough = captured.len().min(EXCERPT * 4 + longest.unwrap_or(0));
    let text = String::from_utf8_lossy(&captured[..enough]);
    let all = whole && enough == captured.len();
    let mut text = redact(&text, secrets);
    if !all {
        // Or across the end of what was looked at, maybe in the middle of a character.
        text.truncate(text.trim_end_matches('\u{fffd}').len());
        while let Some(begun) = begun(&text, secrets) {
            text.truncate(begun);
        }
    }
    escape::shorten(&text, EXCERPT, all)
}

/// Where a secret begins that the text ends in the middle of.
fn begun(text: &str, secrets: &[&str]) -> Option<usize> {
    let cut = |secret: &&str| {
        let mut starts = secret.char_indices().rev().map(|(end, _)| &secret[..end]);
        let cut = starts.find(|start| !start.is_empty() && text.ends_with(start))?;
        Some(text.len() - cut.len())
    };
    let long = secrets.iter().filter(|secret| secret.len() >= SECRET);
    long.filter_map(cut).min()
}

/// A text without the secrets that it repeats, in capitals or not: names of hosts have no case.
pub fn redact(text: &str, secrets: &[&str]) -> String {
    let mut hidden: Vec<&str> = secrets.to_vec();
    hidden.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = text.to_owned();
    for secret in hidden.iter().filter(|secret| secret.len() >= SECRET) {
        // Lower case of ASCII has the same places.
        let (folded, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
        let mut found = folded.match_indices(&secret).peekable();
        if found.peek().is_none() {
            continue;
        }
        let (mut without, mut from) = (String::with_capacity(text.len()), 0);
        for (at, _) in found {
            without.push_str(&text[from..at]);
            without.push_str("[redacted]");
            from = at + secret.len();
        }
        without.push_str(&text[from..]);
        text = without;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_cannot_drive_a_terminal() {
        let output = Output::of(b"\x1b[2Jhi\n", 7, &[]);
        assert_eq!(output.excerpt, "␛[2Jhi␊");
        assert!(!output.truncated);
        let long = Output::of(&[b'x'; 5000], 9000, &[]);
        assert_eq!(long.excerpt.chars().count(), EXCERPT);
        assert!(long.excerpt.ends_with('…'));
        assert!(long.truncated);
        assert_eq!(long.bytes, 9000);
    }

    #[test]
    fn an_excerpt_does_not_repeat_what_it_is_told_to_hide() {
        let output = Output::of(
            b"token=hunter22 and hunter2",
            26,
            &["hunter2", "hunter22", "a"],
        );
        assert_eq!(output.excerpt, "token=[redacted] and [redacted]");
        let mut long = vec![b'x'; EXCERPT - 2];
        long.extend_from_slice(b"hunter22");
        let output = Output::of(&long, 520, &["hunter22"]);
        assert!(!output.excerpt.contains('h'), "{}", output.excerpt);
    }

    #[test]
    fn an_excerpt_does_not_show_the_start_of_what_it_hides() {
        let secret = format!("h{}", "\u{17c}h".repeat(40));
        let many = secret.repeat(100);
        for captured in [many.as_bytes(), &many.as_bytes()[..200]] {
            for cut in 0..secret.len().min(captured.len() - secret.len()) {
                let captured = &captured[..captured.len() - cut];
                let output = Output::of(captured, many.len() as u64, &[&secret]);
                assert!(!output.excerpt.contains('h'), "{}", output.excerpt);
                assert!(output.excerpt.starts_with("[redacted]"), "{cut}");
            }
        }
        let output = Output::of(b"a hunt", 6, &["hunter2"]);
        assert_eq!(output.excerpt, "a hunt", "it ends by itself");
    }

    #[test]
    fn a_secret_in_another_case_is_one() {
        assert_eq!(
            redact("x.HUNTER2ż.hunter2Ż.Hunter22", &["hunTer2", "Hunter22"]),
            "x.[redacted]ż.[redacted]Ż.[redacted]"
        );
    }

    #[test]
    fn arguments_do_not_run_into_each_other() {
        let digests: Vec<String> = [&["ab", "c"][..], &["a", "bc"], &["abc"]]
            .iter()
            .map(|argv| command_digest(&argv.iter().map(ToString::to_string).collect::<Vec<_>>()))
            .collect();
        assert_ne!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[2]);
    }

    #[test]
    fn verdicts_have_the_names_of_the_contract() {
        for verdict in Verdict::ALL {
            let json = serde_json::to_value(verdict).expect("json");
            assert_eq!(json, verdict.name());
        }
    }

    #[test]
    fn what_ended_an_execution_counts_before_what_it_was_denied() {
        let denied = [Egress {
            allowed: false,
            code: "egress.host".into(),
            rule: None,
            layer: None,
            protocol: "https".into(),
            host: "example.org".into(),
            port: 443,
            ..Egress::default()
        }];
        assert_eq!(Verdict::of(None, true, &[], &[]), Verdict::Allowed);
        assert_eq!(Verdict::of(None, false, &[], &[]), Verdict::Error);
        assert_eq!(
            Verdict::of(None, true, &denied, &[]),
            Verdict::BlockedAtEgress
        );
        assert_eq!(
            Verdict::of(Some("timeout"), false, &denied, &[]),
            Verdict::Timeout
        );
        assert_eq!(Verdict::of(Some("memory"), false, &[], &[]), Verdict::Limit);
        assert_eq!(
            Verdict::of(Some("cancelled"), false, &[], &[]),
            Verdict::Cancelled
        );
    }
}
