//! The key that signs heads: made on first use, readable by its owner only.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::rand::{GetRandomFlags, getrandom};

use super::directory::{LogDirectory, SMALL};
use super::error::{LogError, Result};
use crate::Event;
use crate::note::{PublicKey, SecretKey};

const SECRET: &str = "key";
/// The key that a rotation is about to make the one in force.
const NEXT: &str = "key.next";
pub(crate) const PUBLIC: &str = "key.pub";

pub(crate) fn load(directory: &LogDirectory) -> Result<Option<SecretKey>> {
    read(directory, SECRET)
}

pub(crate) fn load_next(directory: &LogDirectory) -> Result<Option<SecretKey>> {
    read(directory, NEXT)
}

fn read(directory: &LogDirectory, name: &str) -> Result<Option<SecretKey>> {
    let path = directory.file(name);
    let wrong = |problem: String| LogError::Key {
        path: path.clone(),
        problem,
    };
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file".into()));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(wrong(format!(
            "others may read it (mode {mode:o}, not 600)"
        )));
    }
    let text = brig_input::read_unlinked(&path, SMALL).map_err(|error| wrong(error.to_string()))?;
    let key = SecretKey::parse(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(key))
}

/// The first key of a log, which also gives the log its name.
pub(crate) fn create(directory: &LogDirectory) -> Result<SecretKey> {
    let mut name = String::from("brig/");
    for byte in random::<16>(directory)? {
        name.push_str(&format!("{byte:02x}"));
    }
    let key = fresh(directory, &name)?;
    directory.replace(SECRET, key.to_text().as_bytes())?;
    Ok(key)
}

/// Puts the public key beside the secret one, unless it is there: whoever made the secret key may
/// have been ended before it came to that.
pub(crate) fn complete(directory: &LogDirectory, key: &SecretKey) -> Result<()> {
    match fs::symlink_metadata(directory.file(PUBLIC)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => publish(directory, key),
        // Another one is for `verify` to report.
        _ => Ok(()),
    }
}

/// The public key of the log, also where only the secret one is there.
pub(crate) fn public(directory: &LogDirectory) -> Result<PublicKey> {
    let path = directory.file(PUBLIC);
    let wrong = |problem: String| LogError::Key {
        path: path.clone(),
        problem,
    };
    match brig_input::read_unlinked(&path, SMALL) {
        Ok(text) => PublicKey::parse(&text).map_err(|error| wrong(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match load(directory) {
            Ok(Some(key)) => Ok(key.public().clone()),
            _ => Err(wrong(error.to_string())),
        },
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// A new key for the same log, not yet in force.
pub(crate) fn create_next(directory: &LogDirectory, name: &str) -> Result<SecretKey> {
    let key = fresh(directory, name)?;
    directory.replace(NEXT, key.to_text().as_bytes())?;
    Ok(key)
}

/// Puts the next key in force.
pub(crate) fn promote(directory: &LogDirectory, key: &SecretKey) -> Result<()> {
    publish(directory, key)?;
    let (from, to) = (directory.file(NEXT), directory.file(SECRET));
    fs::rename(from, &to).map_err(LogError::io("replace", &to))?;
    directory.sync()
}

/// Forgets a next key that was never recorded.
pub(crate) fn discard_next(directory: &LogDirectory) -> Result<()> {
    let path = directory.file(NEXT);
    fs::remove_file(&path).map_err(LogError::io("remove", &path))
}

fn publish(directory: &LogDirectory, key: &SecretKey) -> Result<()> {
    directory.replace(PUBLIC, format!("{}\n", key.public()).as_bytes())
}

fn fresh(directory: &LogDirectory, name: &str) -> Result<SecretKey> {
    Ok(SecretKey::new(name, random(directory)?)?)
}

fn random<const N: usize>(directory: &LogDirectory) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| LogError::io("make", &directory.file(SECRET))(error.into()))?;
    // Requests of up to 256 bytes are always met in full.
    debug_assert_eq!(count, N);
    Ok(bytes)
}

/// What both keys sign when one follows the other after `size` records.
pub(crate) fn rotation_text(size: u64, from: &PublicKey, to: &PublicKey) -> String {
    format!("brig key rotation\n{size}\n{from}\n{to}\n")
}

pub(crate) fn rotation(size: u64, from: &SecretKey, to: &SecretKey) -> Event {
    let text = rotation_text(size, from.public(), to.public());
    Event::KeyRotated {
        from: from.public().to_string(),
        to: to.public().to_string(),
        signed_by_from: from.sign(text.as_bytes()),
        signed_by_to: to.sign(text.as_bytes()),
    }
}

/// The keys of a rotation record, if both signed for it at this place.
pub(crate) fn check_rotation(seq: u64, record: &str) -> Option<(PublicKey, PublicKey)> {
    let record: crate::Record = serde_json::from_str(record).ok()?;
    let Event::KeyRotated {
        from,
        to,
        signed_by_from,
        signed_by_to,
    } = record.event
    else {
        return None;
    };
    let (from, to) = (PublicKey::parse(&from).ok()?, PublicKey::parse(&to).ok()?);
    let text = rotation_text(seq, &from, &to);
    let signed = from.name() == to.name()
        && from.verify(text.as_bytes(), &signed_by_from)
        && to.verify(text.as_bytes(), &signed_by_to);
    signed.then_some((from, to))
}

/// Whether a record may be a rotation. A string can't contain this: its quotes are escaped.
pub(crate) fn is_rotation(record: &str) -> bool {
    memchr::memmem::find(record.as_bytes(), b"\"event\":\"key_rotated\"").is_some()
}
