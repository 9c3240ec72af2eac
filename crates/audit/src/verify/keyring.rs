use super::error::{VerifyError, VerifyErrorKind};
use crate::log::check_rotation;
use crate::note::PublicKey;
use crate::{Event, Head, Record};

/// The keys of a log, and from which size on each signs its heads.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyring {
    keys: Vec<(u64, PublicKey)>,
    /// The records that name them, with their numbers.
    records: Vec<(u64, String)>,
}

impl Keyring {
    /// From the records that name keys.
    pub(super) fn replay(records: &[(u64, String)]) -> Result<Self, VerifyError> {
        let mut keys = Self::default();
        for (seq, record) in records {
            match seq {
                0 => keys.created(record)?,
                _ => keys.rotated(*seq, record)?,
            }
        }
        Ok(keys)
    }

    pub(super) fn records(&self) -> &[(u64, String)] {
        &self.records
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.iter().map(|(_, key)| key)
    }

    /// The first record names the first key.
    pub(super) fn created(&mut self, record: &str) -> Result<(), VerifyError> {
        let named = match serde_json::from_str::<Record>(record) {
            Ok(Record {
                event: Event::LogCreated { origin, key },
                ..
            }) => PublicKey::parse(&key)
                .ok()
                .filter(|key| key.name() == origin),
            _ => None,
        };
        let key = named.ok_or_else(|| VerifyError::at(0, VerifyErrorKind::NotARecord))?;
        self.keys.push((0, key));
        self.records.push((0, record.to_owned()));
        Ok(())
    }

    pub(super) fn rotated(&mut self, seq: u64, record: &str) -> Result<(), VerifyError> {
        let wrong = || VerifyError::at(seq, VerifyErrorKind::Rotation);
        let (from, to) = check_rotation(seq, record).ok_or_else(wrong)?;
        match self.keys.last() {
            Some((_, last)) if *last == from => {}
            _ => return Err(wrong()),
        }
        self.keys.push((seq + 1, to));
        self.records.push((seq, record.to_owned()));
        Ok(())
    }

    /// The key that writes now.
    pub(super) fn last(&self) -> Option<&PublicKey> {
        self.keys.last().map(|(_, key)| key)
    }

    pub(super) fn rotations(&self) -> u64 {
        self.keys.len().saturating_sub(1) as u64
    }

    /// The log's keys signed each other, so one trusted key is enough.
    pub(super) fn trust(&self, key: &PublicKey) -> Result<(), VerifyError> {
        if self.keys.iter().any(|(_, known)| known == key) {
            return Ok(());
        }
        Err(VerifyError::of(VerifyErrorKind::Key(format!(
            "`{key}` is not a key of this log"
        ))))
    }

    /// Whether a head over this many records is signed by the key that had to sign it.
    pub(super) fn open(&self, note: &str, size: u64) -> Result<(), String> {
        let key = self.keys.iter().rev().find(|(from, _)| *from <= size);
        let (_, key) = key.ok_or("there is no key to check it with")?;
        Head::open(note, key).map_err(|error| error.to_string())?;
        Ok(())
    }
}
