use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What precedes the first record.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of the data, without a prefix.
    pub fn of(data: &[u8]) -> Self {
        Self(Sha256::digest(data).into())
    }

    /// RFC 6962: the prefixes keep a leaf from being taken for a node.
    pub fn leaf(data: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([0]);
        hasher.update(data);
        Self(hasher.finalize().into())
    }

    /// RFC 6962: an inner node of the tree, from its two children.
    pub fn node(left: &Self, right: &Self) -> Self {
        let mut bytes = [1; 65];
        bytes[1..33].copy_from_slice(&left.0);
        bytes[33..].copy_from_slice(&right.0);
        Self::of(&bytes)
    }

    /// 64 lower-case digits, as in the lines of the log.
    pub fn hex(&self) -> [u8; 64] {
        const LETTERS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = LETTERS[usize::from(byte >> 4)];
            pair[1] = LETTERS[usize::from(byte & 15)];
        }
        text
    }

    /// Lower case only, so that every digest has one text.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        let mut seen = 0;
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
            seen |= high | low;
            *byte = (high << 4) | low;
        }
        (seen < 16).then_some(Self(bytes))
    }

    /// Standard base64 with padding, as in heads and proofs.
    pub fn base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// `None` unless the text is standard base64, with padding, of 32 bytes.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

/// The values of the digits; 16 for everything else.
const DIGITS: [u8; 256] = {
    let mut values = [16; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.hex()))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digest_has_one_text() {
        let hash = Hash::of(b"abc");
        let text = hash.to_string();
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(Hash::from_hex(text.as_bytes()), Some(hash));
        assert_eq!(Hash::from_hex(text.to_uppercase().as_bytes()), None);
        assert_eq!(Hash::from_hex(&text.as_bytes()[1..]), None);
        assert_eq!(Hash::from_base64(&hash.base64()), Some(hash));
    }
}
