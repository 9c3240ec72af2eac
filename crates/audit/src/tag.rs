//! Tags: what only the log's own writers can put on a line.
//!
//! A head covers records that are on disk. Records that were written after it are covered by the tag
//! of the last line of each write: a MAC over that line, and through `prev` over
//! all before it. A line that was appended without the key has none, so no writer continues after it.
//!
//! HMAC is a few lines over `sha2`, which is here anyway, and tested with a vector of RFC 4231. The
//! `hmac` crate would do the same with more dependencies.

use std::fmt;

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;
/// Bytes of a tag. Half of a SHA-256 is plenty: it can only be guessed against this very log.
const LENGTH: usize = 16;
/// The characters of a tag.
pub(crate) const DIGITS: usize = LENGTH * 2;

/// HMAC-SHA-256 with both key blocks already hashed.
#[derive(Clone)]
pub struct TagKey {
    inner: Sha256,
    outer: Sha256,
}

impl TagKey {
    /// A separate key, so that no tag reveals anything about the signing key.
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self::new(&Self::new(secret).mac(b"brig log tag v1"))
    }

    fn new(key: &[u8; 32]) -> Self {
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK];
            block
                .iter_mut()
                .zip(key)
                .for_each(|(byte, key)| *byte ^= key);
            Sha256::new().chain_update(block)
        };
        Self {
            inner: padded(0x36),
            outer: padded(0x5c),
        }
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        let inner = self.inner.clone().chain_update(message).finalize();
        self.outer.clone().chain_update(inner).finalize().into()
    }

    /// The tag over the digest of a line up to its tag.
    pub(crate) fn tag(&self, digest: &[u8; 32]) -> [u8; DIGITS] {
        const LETTERS: &[u8; 16] = b"0123456789abcdef";
        let mac = self.mac(digest);
        let mut text = [0; DIGITS];
        for (pair, byte) in text.chunks_exact_mut(2).zip(mac) {
            pair[0] = LETTERS[usize::from(byte >> 4)];
            pair[1] = LETTERS[usize::from(byte & 15)];
        }
        text
    }

    /// Takes the same time however much of it is right.
    pub(crate) fn is_tag(&self, digest: &[u8; 32], tag: &[u8]) -> bool {
        let wanted = self.tag(digest);
        let differs = wanted.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        tag.len() == DIGITS && differs == 0
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2, with its key padded as HMAC does.
    #[test]
    fn it_is_hmac() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mac = TagKey::new(&key).mac(b"what do ya want for nothing?");
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn only_the_same_key_and_line_have_the_tag() {
        let (key, digest) = (TagKey::derive(&[7; 32]), [1; 32]);
        let tag = key.tag(&digest);
        assert!(key.is_tag(&digest, &tag));
        assert!(!TagKey::derive(&[8; 32]).is_tag(&digest, &tag));
        assert!(!key.is_tag(&[2; 32], &tag));
        assert!(!key.is_tag(&digest, &tag[1..]));
        assert!(!key.is_tag(&digest, b""));
        for at in 0..tag.len() {
            let mut other = tag;
            other[at] ^= 1;
            assert!(!key.is_tag(&digest, &other));
        }
    }
}
