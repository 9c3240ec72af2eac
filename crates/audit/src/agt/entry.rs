use jiff::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};

use super::timestamp;
use super::value::Value;
use crate::Hash;

/// The fields of an AGT entry that its hash covers, and the others as they came.
#[derive(Clone, Debug)]
pub struct Entry {
    pub entry_id: String,
    /// As `isoformat` writes it.
    pub timestamp: String,
    pub event_type: String,
    pub agent_did: String,
    pub action: String,
    pub resource: Option<String>,
    /// A dictionary.
    pub data: Value,
    pub outcome: String,
    pub previous_hash: String,
    pub entry_hash: String,
    pub unprotected: Unprotected,
}

/// What anyone can change without changing the hash.
#[derive(Clone, Debug, Default)]
pub struct Unprotected {
    pub policy_decision: Option<String>,
    pub matched_rule: Option<String>,
    pub session_id: Option<String>,
    pub policy_version: Option<String>,
    pub arguments_hash: Option<String>,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EntryError {
    #[error("an entry must be an object")]
    NotAnObject,
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    #[error("the field `{field}` must be {expected}")]
    Wrong {
        field: &'static str,
        expected: &'static str,
    },
}

type Fields = std::collections::BTreeMap<super::text::Text, Value>;

impl Entry {
    /// Reads an entry as leniently as AGT does: unknown fields are ignored, missing ones have
    /// their defaults.
    pub fn read(value: &Value) -> Result<Self, EntryError> {
        let Value::Dict(fields) = value else {
            return Err(EntryError::NotAnObject);
        };
        for field in [
            "target_did",
            "approver_did",
            "trace_id",
            "sandbox_id",
            "environment",
            "compute_driver",
        ] {
            optional(fields, field)?;
        }
        for field in ["issued_at", "completed_at"] {
            if let Some(value) = fields.get(&field.into())
                && *value != Value::Null
            {
                point_in_time(field, value)?;
            }
        }
        let data = match fields.get(&"data".into()) {
            None => Value::Dict(Fields::new()),
            Some(data @ Value::Dict(_)) => data.clone(),
            Some(_) => {
                return Err(EntryError::Wrong {
                    field: "data",
                    expected: "an object",
                });
            }
        };
        Ok(Self {
            entry_id: text(fields, "entry_id")?.unwrap_or_else(random_id),
            timestamp: match fields.get(&"timestamp".into()) {
                Some(value) => point_in_time("timestamp", value)?,
                None => timestamp::of(Timestamp::now()),
            },
            event_type: required(fields, "event_type")?,
            agent_did: required(fields, "agent_did")?,
            action: required(fields, "action")?,
            resource: optional(fields, "resource")?,
            data,
            outcome: text(fields, "outcome")?.unwrap_or_else(|| "success".into()),
            previous_hash: text(fields, "previous_hash")?.unwrap_or_default(),
            entry_hash: text(fields, "entry_hash")?.unwrap_or_default(),
            unprotected: Unprotected {
                policy_decision: optional(fields, "policy_decision")?,
                matched_rule: optional(fields, "matched_rule")?,
                session_id: optional(fields, "session_id")?,
                policy_version: optional(fields, "policy_version")?,
                arguments_hash: optional(fields, "arguments_hash")?,
            },
        })
    }

    /// The text that is hashed.
    pub fn canonical(&self) -> String {
        Value::dict([
            ("entry_id", Value::str(&self.entry_id)),
            ("timestamp", Value::str(&self.timestamp)),
            ("event_type", Value::str(&self.event_type)),
            ("agent_did", Value::str(&self.agent_did)),
            ("action", Value::str(&self.action)),
            ("resource", or_null(self.resource.as_deref())),
            ("data", self.data.clone()),
            ("outcome", Value::str(&self.outcome)),
            ("previous_hash", Value::str(&self.previous_hash)),
        ])
        .dump()
    }

    pub fn hash(&self) -> String {
        Hash::of(self.canonical().as_bytes()).to_string()
    }

    /// The whole entry, as AGT exports it.
    pub fn to_value(&self) -> Value {
        let more = &self.unprotected;
        Value::dict([
            ("entry_id", Value::str(&self.entry_id)),
            ("timestamp", Value::str(&self.timestamp)),
            ("issued_at", Value::Null),
            ("completed_at", Value::Null),
            ("event_type", Value::str(&self.event_type)),
            ("agent_did", Value::str(&self.agent_did)),
            ("action", Value::str(&self.action)),
            ("arguments_hash", or_null(more.arguments_hash.as_deref())),
            ("resource", or_null(self.resource.as_deref())),
            ("target_did", Value::Null),
            ("approver_did", Value::Null),
            ("data", self.data.clone()),
            ("outcome", Value::str(&self.outcome)),
            ("policy_decision", or_null(more.policy_decision.as_deref())),
            ("matched_rule", or_null(more.matched_rule.as_deref())),
            ("policy_version", or_null(more.policy_version.as_deref())),
            ("previous_hash", Value::str(&self.previous_hash)),
            ("entry_hash", Value::str(&self.entry_hash)),
            ("trace_id", Value::Null),
            ("session_id", or_null(more.session_id.as_deref())),
            ("sandbox_id", Value::Null),
            ("environment", Value::Null),
            ("compute_driver", Value::Null),
        ])
    }
}

fn or_null(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::str)
}

fn random_id() -> String {
    let mut bytes = [0; 8];
    // Up to 256 bytes are always given.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    format!("audit_{:016x}", u64::from_be_bytes(bytes))
}

fn point_in_time(field: &'static str, value: &Value) -> Result<String, EntryError> {
    timestamp::isoformat(value).ok_or(EntryError::Wrong {
        field,
        expected: "a point in time",
    })
}

/// A text that may be missing, but not null.
fn text(fields: &Fields, field: &'static str) -> Result<Option<String>, EntryError> {
    match fields.get(&field.into()) {
        None => Ok(None),
        Some(Value::Str(text)) if text.as_str().is_some() => Ok(text.as_str().map(str::to_owned)),
        Some(_) => Err(EntryError::Wrong {
            field,
            expected: "a text",
        }),
    }
}

fn required(fields: &Fields, field: &'static str) -> Result<String, EntryError> {
    text(fields, field)?.ok_or(EntryError::Missing(field))
}

fn optional(fields: &Fields, field: &'static str) -> Result<Option<String>, EntryError> {
    match fields.get(&field.into()) {
        Some(Value::Null) => Ok(None),
        _ => text(fields, field),
    }
}
