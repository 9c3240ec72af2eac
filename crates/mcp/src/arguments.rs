//! The arguments of the tools. Every type denies unknown fields: what is not here can't be asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_sandbox::{Language, SessionId};
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ToolError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    pub code: String,
    pub language: Option<LanguageName>,
    pub session: Option<SessionName>,
    pub timeout: Option<Seconds>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCommand {
    pub command: Option<String>,
    pub argv: Option<Vec<String>>,
    pub session: Option<SessionName>,
    pub cwd: Option<String>,
    pub env: Option<BTreeMap<String, String>>,
    pub stdin: Option<String>,
    pub timeout: Option<Seconds>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub session: SessionName,
    pub path: String,
    pub content: Option<String>,
    pub content_base64: Option<String>,
    pub append: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    pub session: SessionName,
    pub path: String,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    pub session: SessionName,
    pub path: Option<String>,
    pub depth: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSession {
    pub session: SessionName,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LanguageName {
    Python,
    Bash,
    Node,
}

impl From<LanguageName> for Language {
    fn from(name: LanguageName) -> Self {
        match name {
            LanguageName::Python => Language::Python,
            LanguageName::Bash => Language::Bash,
            LanguageName::Node => Language::Node,
        }
    }
}

/// `[a-z0-9][a-z0-9-]{0,31}`: shorter and plainer than session ids may be elsewhere, so that a model gets
/// it right.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct SessionName(SessionId);

impl SessionName {
    pub(crate) const PATTERN: &str = "^[a-z0-9][a-z0-9-]{0,31}$";

    pub(crate) fn id(&self) -> &SessionId {
        &self.0
    }
}

impl TryFrom<String> for SessionName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let valid = text.len() <= 32 && !text.starts_with('-') && text.chars().all(plain);
        let id = valid.then(|| text.parse().ok()).flatten();
        id.map(Self)
            .ok_or_else(|| format!("session: must match {}", Self::PATTERN))
    }
}

/// A time in seconds, which may be a fraction.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Seconds(pub Duration);

impl TryFrom<f64> for Seconds {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, &'static str> {
        let time = Duration::try_from_secs_f64(seconds).ok();
        let time = time.filter(|time| !time.is_zero());
        time.map(Self).ok_or("timeout: must be more than 0 seconds")
    }
}

/// Reads the arguments of one call. `null` stands for a field that was left out, as some clients send it.
pub(crate) fn read<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ToolError> {
    let mut arguments = arguments.unwrap_or_default();
    arguments.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolError::new(ReasonCode::McpArguments, error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(value: Value) -> Result<RunCode, ToolError> {
        read(value.as_object().cloned())
    }

    #[test]
    fn unknown_fields_and_wrong_types_are_refused() {
        assert!(code(json!({"code": "1"})).is_ok());
        assert!(code(json!({"code": "1", "session": null})).is_ok());
        for wrong in [
            json!({}),
            json!({"code": 1}),
            json!({"code": "1", "network": "on"}),
            json!({"code": "1", "language": "perl"}),
            json!({"code": "1", "timeout": 0}),
            json!({"code": "1", "timeout": -1}),
            json!({"code": "1", "timeout": 1e300}),
            json!({"code": "1", "timeout": "5"}),
        ] {
            assert!(code(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_session_name_is_short_and_plain() {
        let valid = |text: &str| SessionName::try_from(text.to_owned()).is_ok();
        assert!(valid("a") && valid("0-x") && valid(&"a".repeat(32)));
        for wrong in ["", "-a", "A", "a_b", "a/b", "..", "a b", "é", "a\n"] {
            assert!(!valid(wrong), "{wrong:?}");
        }
        assert!(!valid(&"a".repeat(33)));
    }
}
