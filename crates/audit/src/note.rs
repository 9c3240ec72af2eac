//! Signed notes and the keys that sign them, as C2SP `signed-note` describes them.
//!
//! The format is a few lines over `ed25519_dalek`. They are here, and not from a crate, because the
//! parser has to be strict: a note that can be read in two ways could be signed in one and used in the
//! other.
//!
//! A note is a text, an empty line, and one line per signature: `— name base64(id, signature)`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::Hash;
use crate::tag::TagKey;

/// The algorithm byte of Ed25519.
const ED25519: u8 = 1;

/// Why a key or a signed note is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoteError {
    /// The text is not a key of this format. Contains the problem.
    #[error("this is not a key: {0}")]
    Key(&'static str),
    /// The text is not a note, or not a head. Contains the problem.
    #[error("this is not a signed note: {0}")]
    Format(&'static str),
    /// A signature by this key does not match the text.
    #[error("the signature is not valid: the text was changed, or another key signed it")]
    Signature,
    /// None of the signatures is by this key. Contains its text.
    #[error("no signature is by the key `{0}`")]
    NotSigned(String),
}

/// A key that checks signatures. Its text is `name+id+base64(algorithm, key)`.
#[derive(Clone, Eq, PartialEq)]
pub struct PublicKey {
    name: String,
    key: VerifyingKey,
}

impl PublicKey {
    /// Reads the text of a key, as in the file `key.pub`. Its id must match its name and bytes.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let mut parts = text.trim_end_matches('\n').splitn(3, '+');
        let (Some(name), Some(id), Some(data)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key("expected `name+id+key`"));
        };
        let key = decode_key(data)?;
        let key = VerifyingKey::from_bytes(&key)
            .map_err(|_| NoteError::Key("the bytes are not an Ed25519 key"))?;
        let public = Self::new(name, key)?;
        if hex_id(public.id()) != id {
            return Err(NoteError::Key("its id does not match its name and bytes"));
        }
        Ok(public)
    }

    fn new(name: &str, key: VerifyingKey) -> Result<Self, NoteError> {
        let bad = |c: char| c.is_whitespace() || c.is_control() || c == '+';
        if name.is_empty() || name.contains(bad) {
            return Err(NoteError::Key(
                "the name is empty, or contains a space or a `+`",
            ));
        }
        Ok(Self {
            name: name.into(),
            key,
        })
    }

    /// The name in signatures. The key of a log has the origin of the log as its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> [u8; 4] {
        let mut bytes = self.name.as_bytes().to_vec();
        bytes.push(b'\n');
        bytes.push(ED25519);
        bytes.extend_from_slice(self.key.as_bytes());
        let [a, b, c, d, ..] = Hash::of(&bytes).0;
        [a, b, c, d]
    }

    /// Whether `signature`, as base64, is this key's over `message`.
    pub fn verify(&self, message: &[u8], signature: &str) -> bool {
        let bytes = STANDARD.decode(signature).ok();
        let signature = bytes.and_then(|bytes| Signature::from_slice(&bytes).ok());
        signature.is_some_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }

    /// The text of a note, if this key signed it.
    pub fn open<'a>(&self, note: &'a str) -> Result<&'a str, NoteError> {
        let (text, signatures) = split(note)?;
        let mut signed = false;
        for (name, signature) in signatures {
            let (id, signature) = signature
                .split_first_chunk::<4>()
                .ok_or(NoteError::Format("a signature is too short"))?;
            if name != self.name || *id != self.id() {
                continue;
            }
            let signature = Signature::from_slice(signature).map_err(|_| NoteError::Signature)?;
            self.key
                .verify_strict(text.as_bytes(), &signature)
                .map_err(|_| NoteError::Signature)?;
            signed = true;
        }
        if signed {
            Ok(text)
        } else {
            Err(NoteError::NotSigned(self.to_string()))
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = encode_key(self.key.as_bytes());
        write!(f, "{}+{}+{data}", self.name, hex_id(self.id()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key that signs. Its text is `PRIVATE+KEY+name+id+base64(algorithm, seed)`.
#[derive(Clone)]
pub struct SecretKey {
    public: PublicKey,
    key: SigningKey,
}

impl SecretKey {
    /// A key from 32 random bytes. The name must not be empty, nor contain white space, control characters or `+`.
    pub fn new(name: &str, seed: [u8; 32]) -> Result<Self, NoteError> {
        let key = SigningKey::from_bytes(&seed);
        Ok(Self {
            public: PublicKey::new(name, key.verifying_key())?,
            key,
        })
    }

    /// Reads what [`to_text`](Self::to_text) returns. The id must match the name and the bytes.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let wrong = NoteError::Key("expected `PRIVATE+KEY+name+id+key`");
        let rest = text.trim_end_matches('\n').strip_prefix("PRIVATE+KEY+");
        let mut parts = rest.ok_or(wrong.clone())?.splitn(3, '+');
        let (Some(name), Some(id), Some(data)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong);
        };
        let secret = Self::new(name, decode_key(data)?)?;
        if hex_id(secret.public.id()) != id {
            return Err(NoteError::Key("its id does not match its name and bytes"));
        }
        Ok(secret)
    }

    /// The text that must be kept secret.
    pub fn to_text(&self) -> String {
        let id = hex_id(self.public.id());
        let data = encode_key(self.key.as_bytes());
        format!("PRIVATE+KEY+{}+{id}+{data}\n", self.public.name)
    }

    /// The key that checks these signatures.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of a message, as base64.
    pub fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(self.key.sign(message).to_bytes())
    }

    /// The key of the tags on the lines of this key's log.
    pub(crate) fn tags(&self) -> TagKey {
        TagKey::derive(self.key.as_bytes())
    }

    /// A signed note. `text` ends with a newline.
    pub fn sign_note(&self, text: &str) -> String {
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        let data = STANDARD.encode([&self.public.id()[..], &signature].concat());
        format!("{text}\n— {} {data}\n", self.public.name)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public).finish()
    }
}

/// The text of a note. Its signatures are not checked.
pub fn unverified_text(note: &str) -> Result<&str, NoteError> {
    split(note).map(|(text, _)| text)
}

type Signatures<'a> = Vec<(&'a str, Vec<u8>)>;

fn split(note: &str) -> Result<(&str, Signatures<'_>), NoteError> {
    if note.chars().any(|c| c.is_control() && c != '\n') {
        return Err(NoteError::Format("it contains a control character"));
    }
    let end = note
        .rfind("\n\n")
        .ok_or(NoteError::Format("no empty line before the signatures"))?;
    let (text, signatures) = (&note[..=end], &note[end + 2..]);
    let lines = signatures
        .strip_suffix('\n')
        .ok_or(NoteError::Format("the last line is incomplete"))?;
    let mut list = Vec::new();
    for line in lines.split('\n') {
        let parts = line
            .strip_prefix("— ")
            .and_then(|rest| rest.split_once(' '));
        let (name, data) = parts.ok_or(NoteError::Format("a signature line is malformed"))?;
        let data = STANDARD
            .decode(data)
            .map_err(|_| NoteError::Format("a signature is not base64"))?;
        list.push((name, data));
    }
    Ok((text, list))
}

fn hex_id(id: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

fn encode_key(key: &[u8; 32]) -> String {
    STANDARD.encode([&[ED25519][..], key].concat())
}

fn decode_key(data: &str) -> Result<[u8; 32], NoteError> {
    let bytes = STANDARD
        .decode(data)
        .map_err(|_| NoteError::Key("the key is not base64"))?;
    match bytes.split_first() {
        Some((&ED25519, key)) => key
            .try_into()
            .map_err(|_| NoteError::Key("its length is wrong")),
        _ => Err(NoteError::Key("it is not an Ed25519 key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of the specification of Go's notes.
    const GO_SECRET: &str =
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const GO_PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const GO_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\
        \n\
        — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    #[test]
    fn notes_of_go_can_be_read_and_made() {
        let public = PublicKey::parse(GO_PUBLIC).expect("key");
        assert_eq!(public.to_string(), GO_PUBLIC);
        let text = public.open(GO_NOTE).expect("signed");
        let secret = SecretKey::parse(GO_SECRET).expect("key");
        assert_eq!(secret.to_text().trim_end(), GO_SECRET);
        assert_eq!(secret.public(), &public);
        assert_eq!(secret.sign_note(text), GO_NOTE);
    }

    #[test]
    fn every_changed_bit_of_a_note_is_seen() {
        let public = PublicKey::parse(GO_PUBLIC).expect("key");
        for at in 0..GO_NOTE.len() {
            for bit in 0..8 {
                let mut bytes = GO_NOTE.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                let opened = String::from_utf8(bytes)
                    .ok()
                    .and_then(|note| public.open(&note).ok().map(str::to_owned));
                assert_eq!(opened, None, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_note_of_another_key_is_refused() {
        let other = SecretKey::new("PeterNeumann", [7; 32]).expect("key");
        let refused = other.public().open(GO_NOTE);
        assert!(
            matches!(refused, Err(NoteError::NotSigned(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn wrong_keys_are_refused() {
        for text in [
            "",
            "a+b",
            "name+00000000+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNeumann+c74f20a3+AhpcZQ==",
            "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        ] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
        assert!(SecretKey::parse(GO_PUBLIC).is_err());
        assert!(!format!("{:?}", SecretKey::parse(GO_SECRET)).contains("AYEKFA"));
    }
}
