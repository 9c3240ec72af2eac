//! The name of a tool.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;

/// The longest name, in bytes.
const LONGEST: usize = 128;

/// The name of a tool: a letter or `_`, then letters, digits, `_`, `-`, `.` or `/`, all of them ASCII, so that
/// no two names look alike.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ToolName(String);

/// A text that is not a valid name of a tool.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{}` is not a valid tool name: use an ASCII letter or `_`, then at most {} letters, digits, `_`, `-`, `.` or `/`",
    .0.escape_debug(),
    LONGEST - 1
)]
pub struct InvalidToolName(pub String);

impl ToolName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// If the text is not a valid name.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidToolName> {
        let text = text.into();
        let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        if starts && text.len() <= LONGEST && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            Err(InvalidToolName(text.chars().take(LONGEST).collect()))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ascii_and_bounded() {
        for good in ["fetch_arxiv", "_x", "fs.read", "github/list-issues", "A"] {
            assert_eq!(ToolName::new(good).expect(good).as_str(), good);
        }
        let long = "x".repeat(LONGEST + 1);
        // The `е` of the second is Cyrillic.
        for bad in [
            "", "fеtch", "1st", "-x", "a b", "a\nb", "a\0", "../x", &long,
        ] {
            assert!(ToolName::new(bad).is_err(), "{bad}");
        }
        assert!(ToolName::new(&long[1..]).is_ok());
    }
}
