//! What applies to a run unless a flag says otherwise: in the user's configuration, and limits in agent
//! files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_schema::{Fault, Field, FieldKind, KeyPath, Object, Position, Reader};

use crate::quantity;

/// Limits, where they are set.
pub(crate) const LIMIT_FIELDS: &[Field] = &[
    Field::new(
        "timeout",
        FieldKind::Name,
        "How long an execution may take: `500ms`, `10s`, `2m`, `1h`.",
    )
    .nullable(),
    Field::new("memory", FieldKind::Name, "Memory, such as `512M` or `1G`.").nullable(),
    Field::new(
        "cpu",
        FieldKind::Number {
            min: 0.01,
            max: 1024.0,
        },
        "Processors; fractions are allowed.",
    )
    .nullable(),
    Field::new(
        "pids",
        FieldKind::Integer { min: 1, max: 65536 },
        "Processes and threads.",
    )
    .nullable(),
    Field::new(
        "disk",
        FieldKind::Name,
        "What may be written, such as `256M`.",
    )
    .nullable(),
    Field::new(
        "output_max",
        FieldKind::Name,
        "How much of each of stdout and stderr is kept, such as `1M`.",
    )
    .nullable(),
];

pub(crate) const DEFAULT_FIELDS: &[Field] = &[
    Field::new(
        "backend",
        FieldKind::Name,
        "The default backend: a kind, or KIND:NAME of `backends`. It also replaces the backend of an \
         agent file.",
    )
    .nullable()
    .default("\"native\""),
    Field::new(
        "policy",
        FieldKind::Name,
        "A policy for every run and every new session, unless --policy or --policy-root is given. The \
         policy of an agent file applies beside it. A path is relative to the directory of the \
         configuration.",
    )
    .nullable(),
    Field::new(
        "limits",
        FieldKind::Object(LIMIT_FIELDS),
        "Limits, as if flags had set them.",
    )
    .nullable()
    .default("{}"),
    Field::new(
        "options",
        FieldKind::Variables,
        "Options of backends, such as `image`. Those that a backend does not have are ignored for it.",
    )
    .nullable()
    .default("{}"),
];

/// Limits that were set somewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetLimits {
    /// How long an execution may take.
    pub timeout: Option<Duration>,
    /// In bytes.
    pub memory: Option<u64>,
    /// Processors.
    pub cpu: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// In bytes.
    pub disk: Option<u64>,
    /// Of each stream, in bytes.
    pub output_max: Option<u64>,
}

/// What applies to a run unless a flag says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The name of a backend.
    pub backend: Option<String>,
    /// As it is written.
    pub policy: Option<PathBuf>,
    /// Limits.
    pub limits: SetLimits,
    /// Of backends.
    pub options: BTreeMap<String, String>,
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    root: &KeyPath<'_>,
) -> Defaults {
    let Some(object) = reader.child(object, name, root) else {
        return Defaults::default();
    };
    let entry = root.key(name);
    let options = reader.variables(&object, "options", &entry).into_iter();
    // As in `backends`.
    let options = options.map(|(name, given)| (name.replace('_', "-"), given.value));
    Defaults {
        backend: reader
            .text(&object, "backend", &entry)
            .map(|text| text.value),
        policy: reader
            .text(&object, "policy", &entry)
            .map(|text| text.value.into()),
        options: options.collect(),
        limits: limits(reader, &object, "limits", &entry),
    }
}

pub(crate) fn limits(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    root: &KeyPath<'_>,
) -> SetLimits {
    let Some(object) = reader.child(object, name, root) else {
        return SetLimits::default();
    };
    let entry = &root.key(name);
    let pids = reader.integer(&object, "pids", entry);
    SetLimits {
        timeout: quantity(reader, &object, "timeout", entry, quantity::duration),
        memory: quantity(reader, &object, "memory", entry, quantity::size),
        cpu: reader.number(&object, "cpu", entry).map(|cpu| cpu.value),
        pids: pids.and_then(|pids| pids.value.try_into().ok()),
        disk: quantity(reader, &object, "disk", entry, quantity::size),
        output_max: quantity(reader, &object, "output_max", entry, quantity::size),
    }
}

/// An amount with its unit. What is wrong with it is an error with its position.
pub(crate) fn quantity<T>(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    name: &'static str,
    entry: &KeyPath<'_>,
    parse: fn(&str) -> Result<T, String>,
) -> Option<T> {
    let text = reader.text(object, name, entry)?;
    match parse(&text.value) {
        Ok(value) => Some(value),
        Err(problem) => {
            let fault = Fault::new(ReasonCode::ConfigInvalid, problem);
            let at = text.at.unwrap_or(Position::START);
            reader.log.error(at, &entry.key(name), fault);
            None
        }
    }
}
