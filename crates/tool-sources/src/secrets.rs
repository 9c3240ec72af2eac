//! Secrets that a tool was given. What it says when it fails reaches the sandboxed code, and must not contain them.

use std::fmt;

/// Shorter values are too common to be looked for.
const SHORTEST: usize = 4;
const HIDDEN: &str = "[secret]";

/// Values of variables and headers.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut all = Vec::new();
        for value in values {
            // Of `Bearer TOKEN`, the token alone, too.
            let last = value.split_whitespace().next_back().map(str::to_owned);
            all.extend([Some(value), last].into_iter().flatten());
        }
        all.retain(|value| value.len() >= SHORTEST);
        // One may be a part of another.
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        all.dedup();
        Self(all)
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        let hide = |text: String, secret: &String| text.replace(secret.as_str(), HIDDEN);
        self.0.iter().fold(text.to_owned(), hide)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        let values = ["Bearer t0ken-123", "t0ken", "x", ""].map(str::to_owned);
        let secrets = Secrets::new(values);
        assert_eq!(
            secrets.hide("401: Bearer t0ken-123, t0ken-123, t0ken, x"),
            "401: [secret], [secret], [secret], x"
        );
        assert_eq!(secrets.hide("no such paper"), "no such paper");
        assert!(!format!("{secrets:?}").contains("t0ken"));
    }
}
