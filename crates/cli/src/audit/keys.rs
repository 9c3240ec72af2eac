//! Which keys to check with.

use std::fs;
use std::path::Path;

use brig_audit::log::Snapshot;
use brig_audit::note::PublicKey;
use brig_audit::verify;

use crate::failure::Failure;

pub fn read(path: &Path) -> Result<PublicKey, Failure> {
    let text = text(path)?;
    PublicKey::parse(&text)
        .map_err(|error| Failure::new("audit.key", format!("file `{}`: {error}", path.display())))
}

/// The given key, or all that the log has had.
pub fn given_or_of(key: Option<&Path>, log: &Path) -> Result<Vec<PublicKey>, Failure> {
    if let Some(path) = key {
        return Ok(vec![read(path)?]);
    }
    let mut keys = vec![Snapshot::open(log)?.key()?];
    keys.extend(verify::keys(log)?);
    Ok(keys)
}

pub fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::file(&path.to_string_lossy(), &error))
}
