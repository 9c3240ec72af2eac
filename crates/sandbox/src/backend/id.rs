//! The name of a backend: what kind it is, and which configured one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Shown and written as `docker`, or as `docker:build-host` if the user's configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BackendId {
    kind: Cow<'static, str>,
    instance: Option<String>,
}

/// A text that is not the name of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a valid backend name: write KIND or KIND:NAME, with a-z A-Z 0-9 _ . - in each",
    .0.escape_debug()
)]
pub struct InvalidBackendId(pub String);

impl BackendId {
    /// The backend of this kind that needs no configuration.
    pub const fn of(kind: &'static str) -> Self {
        Self {
            kind: Cow::Borrowed(kind),
            instance: None,
        }
    }

    /// What it is, such as `docker`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name in the user's configuration.
    pub fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instance {
            Some(instance) => write!(f, "{}:{instance}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

impl FromStr for BackendId {
    type Err = InvalidBackendId;

    fn from_str(text: &str) -> Result<Self, InvalidBackendId> {
        let (kind, instance) = match text.split_once(':') {
            Some((kind, instance)) => (kind, Some(instance)),
            None => (text, None),
        };
        if !is_name(kind) || instance.is_some_and(|instance| !is_name(instance)) {
            return Err(InvalidBackendId(text.to_owned()));
        }
        Ok(Self {
            kind: Cow::Owned(kind.to_owned()),
            instance: instance.map(str::to_owned),
        })
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

impl TryFrom<String> for BackendId {
    type Error = InvalidBackendId;

    fn try_from(text: String) -> Result<Self, InvalidBackendId> {
        text.parse()
    }
}

impl From<BackendId> for String {
    fn from(id: BackendId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_and_a_configured_name_are_read_and_shown() {
        let id: BackendId = "docker:build-host".parse().expect("a name");
        assert_eq!((id.kind(), id.instance()), ("docker", Some("build-host")));
        assert_eq!(id.to_string(), "docker:build-host");
        let plain: BackendId = "native".parse().expect("a name");
        assert_eq!(plain, BackendId::of("native"));
        assert_eq!(plain.to_string(), "native");
        for bad in ["", ":", "docker:", ":x", "a b", "a:b:c", "-a", "a/b", "a\n"] {
            assert!(bad.parse::<BackendId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn it_is_one_text_in_records() {
        let id: BackendId = serde_json::from_str("\"docker:x\"").expect("a name");
        assert_eq!(serde_json::to_string(&id).expect("JSON"), "\"docker:x\"");
        assert!(serde_json::from_str::<BackendId>("\"a/b\"").is_err());
    }
}
