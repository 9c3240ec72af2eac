//! The keys to verify with.

use std::io;
use std::path::Path;

use brig_audit::log::Snapshot;
use brig_audit::note::PublicKey;
use brig_audit::verify;
use brig_reason::ReasonCode;

use crate::failure::Failure;

/// The size limit of a file that may come from someone else.
const LARGEST: u64 = 256 << 20;

pub(crate) fn read(path: &Path) -> Result<PublicKey, Failure> {
    let text = text(path)?;
    PublicKey::parse(&text).map_err(|error| {
        Failure::new(
            ReasonCode::AuditKey,
            format!("file `{}`: {error}", path.display()),
        )
    })
}

/// The given key, or all keys of the log.
pub(crate) fn given_or_of(key: Option<&Path>, log: &Path) -> Result<Vec<PublicKey>, Failure> {
    if let Some(path) = key {
        return Ok(vec![read(path)?]);
    }
    let mut keys = vec![Snapshot::open(log)?.key()?];
    keys.extend(verify::keys(log)?);
    Ok(keys)
}

/// The text of a file, or of standard input if the path is `-`.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        brig_input::read_stream(io::stdin(), LARGEST)
    } else {
        brig_input::read_named(path, LARGEST)
    };
    read.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    })
    .map_err(|error| Failure::file(&path.to_string_lossy(), &error))
}
