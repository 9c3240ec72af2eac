use super::fault::{Fault, Flaw};
use crate::log::check_rotation;
use crate::note::PublicKey;
use crate::{Event, Head, Record};

/// The keys of a log, and from which size on each signs its heads.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyring(Vec<(u64, PublicKey)>);

impl Keyring {
    /// The first record names the first key.
    pub fn created(&mut self, record: &str) -> Result<(), Fault> {
        let named = match serde_json::from_str::<Record>(record) {
            Ok(Record {
                event: Event::LogCreated { origin, key },
                ..
            }) => PublicKey::parse(&key)
                .ok()
                .filter(|key| key.name() == origin),
            _ => None,
        };
        let key = named.ok_or_else(|| Fault::at(0, Flaw::NotARecord))?;
        self.0.push((0, key));
        Ok(())
    }

    pub fn rotated(&mut self, seq: u64, record: &str) -> Result<(), Fault> {
        let wrong = || Fault::at(seq, Flaw::Rotation);
        let (from, to) = check_rotation(seq, record).ok_or_else(wrong)?;
        match self.0.last() {
            Some((_, last)) if *last == from => {}
            _ => return Err(wrong()),
        }
        self.0.push((seq + 1, to));
        Ok(())
    }

    pub fn into_keys(self) -> Vec<PublicKey> {
        self.0.into_iter().map(|(_, key)| key).collect()
    }

    pub fn rotations(&self) -> u64 {
        self.0.len().saturating_sub(1) as u64
    }

    /// The log's keys vouch for each other, so one that is trusted is enough.
    pub fn trust(&self, key: &PublicKey) -> Result<(), Fault> {
        if self.0.iter().any(|(_, known)| known == key) {
            return Ok(());
        }
        Err(Fault::of(Flaw::Key(format!(
            "`{key}` is no key of this log"
        ))))
    }

    /// Whether a head over this many records is signed by the key that had to sign it.
    pub fn open(&self, note: &str, size: u64) -> Result<(), String> {
        let key = self.0.iter().rev().find(|(from, _)| *from <= size);
        let (_, key) = key.ok_or("there is no key to check it with")?;
        Head::open(note, key).map_err(|error| error.to_string())?;
        Ok(())
    }
}
