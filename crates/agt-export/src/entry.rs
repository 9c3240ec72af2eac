use brig_audit::Hash;
use jiff::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::text::Text;
use crate::timestamp;
use crate::value::Value;

/// The fields of an AGT entry that its hash covers, and the others as they came.
#[derive(Clone, Debug)]
pub struct AgtEntry {
    pub entry_id: Text,
    /// As `isoformat` writes it.
    pub timestamp: String,
    pub event_type: Text,
    pub agent_did: Text,
    pub action: Text,
    pub resource: Option<Text>,
    /// A dictionary.
    pub data: Value,
    pub outcome: Text,
    pub previous_hash: Text,
    pub entry_hash: String,
    pub unprotected: Unprotected,
}

/// Fields that the hash does not cover.
#[derive(Clone, Debug, Default)]
pub struct Unprotected {
    pub policy_decision: Option<Text>,
    pub matched_rule: Option<Text>,
    pub session_id: Option<Text>,
    pub policy_version: Option<Text>,
    pub arguments_hash: Option<Text>,
    /// Who approved it.
    pub approver_did: Option<Text>,
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

type Fields = std::collections::BTreeMap<Text, Value>;

impl AgtEntry {
    /// Reads an entry as leniently as AGT does: unknown fields are ignored, missing ones have
    /// their defaults.
    pub fn read(value: &Value) -> Result<Self, EntryError> {
        let Value::Dict(fields) = value else {
            return Err(EntryError::NotAnObject);
        };
        for field in [
            "target_did",
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
                None => timestamp::isoformat_of(Timestamp::now()),
            },
            event_type: required(fields, "event_type")?,
            agent_did: required(fields, "agent_did")?,
            action: required(fields, "action")?,
            resource: optional(fields, "resource")?,
            data,
            outcome: text(fields, "outcome")?.unwrap_or_else(|| "success".into()),
            previous_hash: text(fields, "previous_hash")?.unwrap_or_default(),
            // Text with half of a surrogate pair is not a hash.
            entry_hash: text(fields, "entry_hash")?
                .and_then(|hash| hash.as_str().map(str::to_owned))
                .unwrap_or_default(),
            unprotected: Unprotected {
                policy_decision: optional(fields, "policy_decision")?,
                matched_rule: optional(fields, "matched_rule")?,
                session_id: optional(fields, "session_id")?,
                policy_version: optional(fields, "policy_version")?,
                arguments_hash: optional(fields, "arguments_hash")?,
                approver_did: optional(fields, "approver_did")?,
            },
        })
    }

    /// The text that is hashed.
    pub fn canonical(&self) -> String {
        Value::dict([
            ("entry_id", Value::Str(self.entry_id.clone())),
            ("timestamp", Value::str(&self.timestamp)),
            ("event_type", Value::Str(self.event_type.clone())),
            ("agent_did", Value::Str(self.agent_did.clone())),
            ("action", Value::Str(self.action.clone())),
            ("resource", or_null(self.resource.as_ref())),
            ("data", self.data.clone()),
            ("outcome", Value::Str(self.outcome.clone())),
            ("previous_hash", Value::Str(self.previous_hash.clone())),
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
            ("entry_id", Value::Str(self.entry_id.clone())),
            ("timestamp", Value::str(&self.timestamp)),
            ("issued_at", Value::Null),
            ("completed_at", Value::Null),
            ("event_type", Value::Str(self.event_type.clone())),
            ("agent_did", Value::Str(self.agent_did.clone())),
            ("action", Value::Str(self.action.clone())),
            ("arguments_hash", or_null(more.arguments_hash.as_ref())),
            ("resource", or_null(self.resource.as_ref())),
            ("target_did", Value::Null),
            ("approver_did", or_null(more.approver_did.as_ref())),
            ("data", self.data.clone()),
            ("outcome", Value::Str(self.outcome.clone())),
            ("policy_decision", or_null(more.policy_decision.as_ref())),
            ("matched_rule", or_null(more.matched_rule.as_ref())),
            ("policy_version", or_null(more.policy_version.as_ref())),
            ("previous_hash", Value::Str(self.previous_hash.clone())),
            ("entry_hash", Value::str(&self.entry_hash)),
            ("trace_id", Value::Null),
            ("session_id", or_null(more.session_id.as_ref())),
            ("sandbox_id", Value::Null),
            ("environment", Value::Null),
            ("compute_driver", Value::Null),
        ])
    }
}

fn or_null(text: Option<&Text>) -> Value {
    text.map_or(Value::Null, |text| Value::Str(text.clone()))
}

fn random_id() -> Text {
    let mut bytes = [0; 8];
    // Up to 256 bytes are always given.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    format!("audit_{:016x}", u64::from_be_bytes(bytes))
        .as_str()
        .into()
}

fn point_in_time(field: &'static str, value: &Value) -> Result<String, EntryError> {
    timestamp::isoformat(value).ok_or(EntryError::Wrong {
        field,
        expected: "a point in time",
    })
}

/// A text that may be missing, but not null.
fn text(fields: &Fields, field: &'static str) -> Result<Option<Text>, EntryError> {
    match fields.get(&field.into()) {
        None => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text.clone())),
        Some(_) => Err(EntryError::Wrong {
            field,
            expected: "a text",
        }),
    }
}

fn required(fields: &Fields, field: &'static str) -> Result<Text, EntryError> {
    text(fields, field)?.ok_or(EntryError::Missing(field))
}

fn optional(fields: &Fields, field: &'static str) -> Result<Option<Text>, EntryError> {
    match fields.get(&field.into()) {
        Some(Value::Null) => Ok(None),
        _ => text(fields, field),
    }
}
