//! Names in one canonical form.

use std::fmt;

use crate::address::ends_in_number;
use crate::error::{HostError, quoted};

/// A name as DNS has it: ASCII, lower case, no final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// Names under which clouds hand out credentials.
const METADATA: [&str; 7] = [
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.tencentyun.com",
];

impl Name {
    /// Whether it is known as a name of a cloud's metadata service. Others may lead there, too: what
    /// counts at a connection is the address.
    pub fn is_metadata(&self) -> bool {
        METADATA.contains(&self.as_str())
    }

    /// The canonical form of a name. `entry` is what the error shows.
    pub(crate) fn parse(entry: &str, text: &str) -> Result<Self, HostError> {
        if let Some(odd) = text.chars().find(|c| is_invisible(*c)) {
            return Err(HostError::new(
                entry,
                format!(
                    "it contains the invisible character U+{:04X}",
                    u32::from(odd)
                ),
            ));
        }
        let ascii = ascii(entry, text)?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() || name.len() > 253 {
            return Err(HostError::new(entry, "a name has 1 to 253 characters"));
        }
        if let Some(label) = name.split('.').find(|label| !is_label(label)) {
            return Err(if label.is_empty() {
                HostError::new(entry, "a part of the name is empty").fix("remove the extra dot")
            } else {
                HostError::new(
                    entry,
                    format!("{} is not a valid part of a name", quoted(label)),
                )
            });
        }
        // What ends in a number is read as an address by some, and as a name by others.
        if ends_in_number(name) {
            return Err(HostError::new(entry, "it is neither a name nor an address"));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name in canonical form: ASCII in lower case, without a dot at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The domains that the name is below, the nearest first.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        self.0
            .match_indices('.')
            .map(|(at, _)| self.0.get(at + 1..).unwrap_or_default())
    }

    pub(crate) fn is_below(&self, domain: &Name) -> bool {
        self.0
            .strip_suffix(&domain.0)
            .and_then(|rest| rest.strip_suffix('.'))
            .is_some_and(|rest| !rest.is_empty())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Mapped and in Punycode, as browsers and curl do it (UTS 46, not transitional).
pub(crate) fn ascii(entry: &str, text: &str) -> Result<String, HostError> {
    match idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::URL) {
        Ok(ascii) => Ok(ascii.into_owned()),
        Err(_) if text.is_ascii() && !text.to_ascii_lowercase().contains("xn--") => {
            Err(HostError::new(
                entry,
                "a name consists of letters, digits, `-`, `_` and dots",
            ))
        }
        Err(_) => Err(HostError::new(
            entry,
            "it is not a valid internationalised name (IDNA)",
        )),
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Control characters, and what can't be seen. IDNA drops these silently: two entries that look alike would be one,
/// or one look like another.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}
