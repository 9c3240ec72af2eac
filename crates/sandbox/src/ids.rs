//! Names that were checked once, at the boundary.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

const MAX: usize = 128;

/// `[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}`, and not a character more.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                if is_name(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(Error::InvalidName { label: $label, given: text.escape_debug().to_string() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// Who asks.
    AgentId, "agent id"
);
name_type!(
    /// A place with files that lives across executions.
    SessionId, "session id"
);
name_type!(
    /// One run of code or of a command.
    ExecutionId, "execution id"
);
name_type!(
    /// A saved state of a session.
    CheckpointName, "checkpoint name"
);

impl SessionId {
    /// A new name that no other has.
    pub fn random() -> Self {
        Self(short_id())
    }
}

impl ExecutionId {
    /// A new name that no other has.
    pub fn random() -> Self {
        Self(short_id())
    }
}

/// Twelve hexadecimal digits: short enough to type, long enough not to meet twice.
fn short_id() -> String {
    let mut text = uuid::Uuid::new_v4().simple().to_string();
    text.truncate(12);
    text
}
