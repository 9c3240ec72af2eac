//! By what another process joins a sandbox: its id, and which decisions about its requests are recorded
//! already. `ID/ALLOWED/DENIED`, where each entry of the service is 16 digits, the newest first.

use std::fmt::Write;

use brig_sandbox::{Error, Result};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::settings;

const DIGITS: usize = 16;

/// The decisions that the service remembered when they were last recorded, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub allowed: Vec<u64>,
    pub denied: Vec<u64>,
}

/// Of one entry, whatever is in it: hosts and paths do not belong into the handle.
pub(crate) fn digest(entry: &Value) -> u64 {
    let hash = Sha256::digest(entry.to_string());
    hash.iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(crate) fn text(id: &str, seen: &Seen) -> String {
    let mut text = id.to_owned();
    for list in [&seen.allowed, &seen.denied] {
        text.push('/');
        for one in list {
            let _ = write!(text, "{one:016x}");
        }
    }
    text
}

/// It comes from a file.
pub(crate) fn parse(text: &str) -> Result<(&str, Seen)> {
    let invalid = |problem: String| Error::InvalidConfig {
        what: "sandbox id",
        problem,
    };
    let mut parts = text.split('/');
    let id = parts.next().unwrap_or_default();
    settings::check_segment(id).map_err(invalid)?;
    let mut list = || {
        let digits = parts.next()?.as_bytes();
        let entries = digits.chunks(DIGITS).map(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.len() == DIGITS && !digits.starts_with('+');
            u64::from_str_radix(digits, 16).ok().filter(|_| plain)
        });
        entries.collect::<Option<Vec<u64>>>()
    };
    match (list(), list(), parts.next()) {
        (Some(allowed), Some(denied), None) => Ok((id, Seen { allowed, denied })),
        _ => Err(invalid("what follows it makes no sense".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let entry = serde_json::json!({"host": "secret.example"});
        let seen = Seen {
            allowed: vec![0, u64::MAX],
            denied: vec![digest(&entry)],
        };
        for seen in [seen, Seen::default()] {
            let text = text("id-1", &seen);
            assert!(!text.contains("secret"), "{text}");
            assert_eq!(parse(&text).expect("a handle"), ("id-1", seen));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let digits = "0123456789abcdef";
        parse(&format!("id/{digits}/")).expect("control: a handle");
        for bad in [
            "",
            "id",
            "id/",
            "/../",
            "id/1/",
            "id///",
            "id/+123456789abcdef/",
            &format!("id/{digits}0/"),
            &format!("id/é{}/", &digits[2..]),
        ] {
            parse(bad).expect_err(bad);
        }
    }
}
