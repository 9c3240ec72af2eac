//! One text for all documents that mean the same, and its digest.

use std::fmt;

use brig_python_semantics::{Map, Value};
use brig_schema::Given;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::Document;
use crate::command::CommandMode;

/// The SHA-256 of a document's canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(document: &Document) -> Self {
        Self(Sha256::digest(document.canonical()).into())
    }

    /// Of several documents in their order, which mean something else as policies of directories. Of
    /// one, its own digest.
    pub(crate) fn of_all<'a>(
        digests: impl IntoIterator<Item = &'a Digest>,
        in_directories: bool,
    ) -> Self {
        let digests: Vec<&Digest> = digests.into_iter().collect();
        if let [only] = digests.as_slice() {
            return **only;
        }
        let mut hasher = Sha256::new();
        if in_directories {
            hasher.update(b"folders");
        }
        for digest in digests {
            hasher.update(digest.0);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Document {
    /// JSON without spaces, with sorted keys and with every default written out.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        Value::Map(self.effective()).write_json(&mut out);
        out
    }

    /// Every field with its effective value.
    pub fn effective(&self) -> Map {
        let mut map = Map::new();
        map.insert("version", &*self.version);
        map.insert("name", &*self.name);
        map.insert("description", &*self.description);
        let rules = self.rules.iter().map(|rule| {
            let condition = &rule.condition;
            let mut inner = Map::new();
            inner.insert("field", &*condition.field);
            inner.insert("operator", condition.operator.name());
            inner.insert("value", condition.value.clone());
            let mut map = Map::new();
            map.insert("name", &*rule.name);
            map.insert("condition", inner);
            map.insert("action", rule.action.name());
            map.insert("priority", rule.priority.to_value());
            map.insert("message", &*rule.message);
            map.insert("override", rule.overrides);
            Value::Map(map)
        });
        map.insert("rules", rules.collect::<Vec<_>>());
        map.insert("defaults", self.effective_defaults());
        map.insert("inherit", self.inherit);
        map.insert("scope", optional(self.scope.as_deref()));
        map.insert("network_allowlist", texts(&self.network_allowlist));
        map.insert("tool_allowlist", texts(&self.tool_allowlist));
        let mounts = &self.mounts;
        let path =
            |given: &Option<Given<String>>| optional(given.as_ref().map(|given| &*given.value));
        let inner: Map = [
            ("input_dir", path(&mounts.input_dir)),
            ("output_dir", path(&mounts.output_dir)),
        ]
        .into_iter()
        .collect();
        map.insert("sandbox_mounts", inner);
        map.insert("command_denylist", texts(&self.command_denylist));
        let allowed = self.command_allowlist.as_deref();
        map.insert("command_allowlist", allowed.map_or(Value::Null, texts));
        // Younger than digests that were written down: its default must not change them.
        if self.command_mode != CommandMode::default() {
            map.insert("command_mode", self.command_mode.name());
        }
        if self.record_tool_arguments {
            map.insert("record_tool_arguments", true);
        }
        let env = self
            .env
            .iter()
            .map(|(name, value)| (&**name, &*value.value));
        map.insert("env", env.collect::<Map>());
        map.insert("waive", texts(&self.waive));
        map
    }

    fn effective_defaults(&self) -> Map {
        let (defaults, limits) = (&self.defaults, &self.limits);
        let mut map = Map::new();
        map.insert("action", defaults.action.value.name());
        map.insert("max_tokens", defaults.max_tokens.value);
        map.insert("max_tool_calls", defaults.max_tool_calls.value);
        map.insert("confidence_threshold", defaults.confidence_threshold.value);
        let cpu = limits.max_cpu.as_ref();
        map.insert(
            "max_cpu",
            cpu.map_or(Value::Null, |given| given.value.into()),
        );
        let whole = [
            ("max_memory_mb", &limits.max_memory_mb),
            ("timeout_seconds", &limits.timeout_seconds),
            ("max_processes", &limits.max_processes),
            ("max_disk_mb", &limits.max_disk_mb),
            ("max_output_bytes", &limits.max_output_bytes),
        ];
        for (name, given) in whole {
            let value = given
                .as_ref()
                .and_then(|given| i64::try_from(given.value).ok());
            map.insert(name, value.map_or(Value::Null, Value::Int));
        }
        map.insert("network_default", defaults.network.value.name());
        // Also younger.
        let approval = defaults.approval_timeout_seconds.value;
        if approval != 300 {
            map.insert("approval_timeout_seconds", approval);
        }
        map
    }
}

fn optional(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn texts<T: fmt::Display>(list: &[Given<T>]) -> Value {
    Value::List(
        list.iter()
            .map(|given| given.value.to_string().into())
            .collect(),
    )
}
