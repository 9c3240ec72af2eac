//! The filter of variables that a caller gives. They reach programs that the policy never saw
//! being started, so whatever makes a loader, a shell or an interpreter load or run something
//! else is refused. The caller's own environment never gets this far.

use crate::{Error, Result};

mod rules;

/// The kernel refuses a single longer string.
const MAX_STRING: usize = 128 * 1024;
const MAX_COUNT: usize = 1024;
const MAX_TOTAL: usize = 1024 * 1024;

/// Checks one variable; the error names it.
pub fn check(name: &str, value: &str) -> Result<()> {
    let refuse = |problem: &str| {
        Err(Error::InvalidConfig {
            what: "environment variable",
            problem: format!("`{}` {problem}", name.escape_debug()),
        })
    };
    let mut bytes = name.bytes();
    if !bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    {
        return refuse(
            "is not a valid name: use letters, digits and _, and do not start with a \
             digit",
        );
    }
    if value.contains('\0') {
        return refuse("has a NUL byte in its value");
    }
    if name.len() + value.len() + 2 > MAX_STRING {
        return refuse("is longer than 128 KiB");
    }
    match rules::why_refused(name, value) {
        Some(why) => refuse(&format!("is refused: {why}")),
        None => Ok(()),
    }
}

/// Whether a variable makes a program load or run something else, or is Brig's own. Not `PATH`.
pub(crate) fn decides_what_runs(name: &str) -> bool {
    name != "PATH" && rules::why_refused(name, "").is_some()
}

/// Checks the names and values of variables.
pub fn check_all(env: &[(String, String)]) -> Result<()> {
    let too_much = |problem: &str| Error::InvalidConfig {
        what: "environment",
        problem: problem.into(),
    };
    if env.len() > MAX_COUNT {
        return Err(too_much("more than 1024 variables"));
    }
    if env
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2)
        .sum::<usize>()
        > MAX_TOTAL
    {
        return Err(too_much("more than 1 MiB in all"));
    }
    env.iter().try_for_each(|(name, value)| check(name, value))
}

/// The session's variables with those of one execution on top, each name once.
pub(crate) fn merge(
    session: &[(String, String)],
    own: Vec<(String, String)>,
) -> Result<Vec<(String, String)>> {
    check_all(&own)?;
    let mut merged: Vec<(String, String)> = Vec::with_capacity(session.len() + own.len());
    for (name, value) in session.iter().cloned().chain(own) {
        match merged.iter_mut().find(|(other, _)| *other == name) {
            Some(slot) => slot.1 = value,
            None => merged.push((name, value)),
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests;
