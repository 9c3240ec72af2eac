//! The signed state of a log: a C2SP `tlog-checkpoint`.

use crate::Hash;
use crate::note::{self, NoteError, PublicKey, SecretKey};

/// Size and root of the tree at one moment. Signed, it covers every record up to there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    /// The name of the log.
    pub origin: String,
    /// How many records it covers: those with a `seq` below this number. Pruned records count.
    pub size: u64,
    /// The root of the tree over these records.
    pub root: Hash,
}

impl Head {
    /// The three lines that are signed, each with its newline.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, self.root.base64())
    }

    /// The signed note. The name of the key must be the origin of the log, or [`open`](Self::open) refuses it.
    pub fn sign(&self, key: &SecretKey) -> String {
        key.sign_note(&self.text())
    }

    /// The head in a signed note, if this key signed it.
    pub fn open(note: &str, key: &PublicKey) -> Result<Self, NoteError> {
        let head = Self::parse(key.open(note)?)?;
        if head.origin != key.name() {
            return Err(NoteError::Format("it is a head of another log"));
        }
        Ok(head)
    }

    /// The head in a note. Its signatures are not checked.
    pub fn unverified(note: &str) -> Result<Self, NoteError> {
        Self::parse(note::unverified_text(note)?)
    }

    fn parse(text: &str) -> Result<Self, NoteError> {
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(NoteError::Format("a head has three lines"));
        };
        let number: u64 = size
            .parse()
            .map_err(|_| NoteError::Format("the size is not a number"))?;
        let root = Hash::from_base64(root).ok_or(NoteError::Format("the root is not a hash"))?;
        if origin.is_empty() || number.to_string() != size {
            return Err(NoteError::Format("the origin or the size is malformed"));
        }
        Ok(Self {
            origin: origin.into(),
            size: number,
            root,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            origin: "brig/test".into(),
            size: 7,
            root: Hash::of(b"root"),
        }
    }

    #[test]
    fn a_head_is_a_checkpoint() {
        let key = SecretKey::new("brig/test", [1; 32]).expect("key");
        let note = head().sign(&key);
        assert_eq!(Head::open(&note, key.public()), Ok(head()));
        assert_eq!(Head::unverified(&note), Ok(head()));
        let lines: Vec<&str> = note.lines().collect();
        assert_eq!(lines[..2], ["brig/test", "7"]);
        assert_eq!(lines[3], "");
        assert!(lines[4].starts_with("— brig/test "));
    }

    #[test]
    fn a_head_of_another_log_or_key_is_refused() {
        let key = SecretKey::new("brig/test", [1; 32]).expect("key");
        let same_name = SecretKey::new("brig/test", [2; 32]).expect("key");
        let other_name = SecretKey::new("brig/other", [1; 32]).expect("key");
        assert!(Head::open(&head().sign(&same_name), key.public()).is_err());
        assert!(Head::open(&head().sign(&other_name), other_name.public()).is_err());
        for text in [
            "brig/test\n07\nx\n",
            "brig/test\n-1\nx\n",
            "brig/test\n1\n",
            "\n1\nx\n",
        ] {
            assert!(Head::open(&key.sign_note(text), key.public()).is_err());
        }
    }
}
