//! One line of the log: `{"hash":…,"prev":…,"record":{…},"seq":N}`, and for the last line of each
//! write also `"tag":…`.
//!
//! The whole line is canonical JSON. `hash` sorts first, so the line without it is `{` and what
//! follows: the leaf of the tree, over which `hash` is the RFC 6962 leaf hash. `prev` is the hash
//! of the line before. `tag` shows the next writer that a writer of this log wrote the line.

use sha2::{Digest, Sha256};

use crate::Hash;
use crate::canonical::is_canonical;
use crate::tag::{self, TagKey};

const HASH: &[u8] = b"{\"hash\":\"";
const PREV: &[u8] = b"\",\"prev\":\"";
const RECORD: &[u8] = b"\",\"record\":";
const SEQ: &[u8] = b",\"seq\":";
const TAG: &[u8] = b",\"tag\":\"";
const TAG_END: &[u8] = b"\"}";
/// All that a tag adds to the end of a line, the closing brace too.
const TAG_SIZE: usize = TAG.len() + tag::DIGITS + TAG_END.len();

const HASH_AT: usize = HASH.len();
const PREV_AT: usize = HASH_AT + 64 + PREV.len();
const RECORD_AT: usize = PREV_AT + 64 + RECORD.len();
/// Where the leaf begins, in place of the quote and the comma after the hash: the prefix of a
/// leaf, and the opening brace.
const LEAF_AT: usize = HASH_AT + 64;
const LEAF: [u8; 2] = [0, b'{'];

/// Adds one line to `out`, and returns its hash. With a key, the line gets a tag.
pub fn write(
    record: &str,
    seq: u64,
    prev: &Hash,
    tags: Option<&TagKey>,
    out: &mut Vec<u8>,
) -> Hash {
    let start = out.len();
    out.extend_from_slice(HASH);
    out.extend_from_slice(&[b'0'; 64]);
    out.extend_from_slice(PREV);
    out.extend_from_slice(&prev.hex());
    out.extend_from_slice(RECORD);
    out.extend_from_slice(record.as_bytes());
    out.extend_from_slice(SEQ);
    out.extend_from_slice(seq.to_string().as_bytes());
    let hash = match tags {
        None => {
            out.push(b'}');
            with_leaf(&mut out[start..], Hash::of)
        }
        Some(tags) => {
            // The line is read once: the tag is over what the hash has taken in so far.
            let begun = with_leaf(&mut out[start..], |leaf| Sha256::new().chain_update(leaf));
            let tag = tags.tag(&begun.clone().finalize().into());
            let end = out.len();
            out.extend_from_slice(TAG);
            out.extend_from_slice(&tag);
            out.extend_from_slice(TAG_END);
            Hash(begun.chain_update(&out[end..]).finalize().into())
        }
    };
    out[start + HASH_AT..start + LEAF_AT].copy_from_slice(&hash.hex());
    out.push(b'\n');
    hash
}

/// Works on the leaf of a line. The line is as before when this returns.
fn with_leaf<T>(line: &mut [u8], work: impl FnOnce(&[u8]) -> T) -> T {
    // In place, so that nothing is copied and the hash runs over one piece.
    let saved = [line[LEAF_AT], line[LEAF_AT + 1]];
    line[LEAF_AT..LEAF_AT + 2].copy_from_slice(&LEAF);
    let done = work(&line[LEAF_AT..]);
    line[LEAF_AT..LEAF_AT + 2].copy_from_slice(&saved);
    done
}

/// Whether the line carries the tag that this key gives it.
pub fn is_vouched(line: &mut [u8], tags: &TagKey) -> bool {
    let Some(end) = line.len().checked_sub(TAG_SIZE) else {
        return false;
    };
    let (before, tail) = line.split_at_mut(end);
    let tag = tail
        .strip_prefix(TAG)
        .and_then(|tail| tail.strip_suffix(TAG_END));
    let Some(tag) = tag else { return false };
    if before.len() < RECORD_AT {
        return false;
    }
    let digest = with_leaf(before, |leaf| Sha256::digest(leaf));
    tags.is_tag(&digest.into(), tag)
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineError {
    /// It is not a line of a log.
    Format,
    /// Its hash does not match its contents.
    Hash,
}

/// A line whose form and hash are right.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The leaf hash, which covers the rest of the line. It was checked.
    pub hash: Hash,
    /// The hash of the line before. [`Hash::ZERO`] in the first line.
    pub prev: Hash,
    /// The number of the record in the log, from 0.
    pub seq: u64,
    /// The canonical JSON of the record.
    pub record: &'a str,
    /// The tag on the last line of a write. Only the key can check it.
    pub tag: Option<&'a str>,
}

impl<'a> Line<'a> {
    /// Reads a line, without its newline, and checks its hash. The line is left as it is.
    pub fn check(line: &'a mut [u8]) -> Result<Self, LineError> {
        let (end, seq) = numbered(line).ok_or(LineError::Format)?;
        let hash = with_leaf(line, Hash::of);
        if line[HASH_AT..LEAF_AT] != hash.hex() {
            return Err(LineError::Hash);
        }
        let line: &'a [u8] = line;
        let prev = Hash::from_hex(&line[PREV_AT..PREV_AT + 64]).ok_or(LineError::Format)?;
        let record = std::str::from_utf8(&line[RECORD_AT..end]).map_err(|_| LineError::Format)?;
        if !is_canonical(record) {
            return Err(LineError::Format);
        }
        let tag = without_tag(line).and_then(|(_, tag)| std::str::from_utf8(tag).ok());
        Ok(Self {
            hash,
            prev,
            seq,
            record,
            tag,
        })
    }

    /// The number of a line, whatever else is wrong with it.
    pub fn seq(line: &[u8]) -> Option<u64> {
        numbered(line).map(|(_, seq)| seq)
    }
}

/// The part of a line before its tag, and the tag, if it has one.
fn without_tag(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, tail) = line.split_at_checked(line.len().checked_sub(TAG_SIZE)?)?;
    let tag = tail.strip_prefix(TAG)?.strip_suffix(TAG_END)?;
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    tag.iter().all(hex).then_some((before, tag))
}

/// Where the record of a line ends, and the number of the line.
fn numbered(line: &[u8]) -> Option<(usize, u64)> {
    let fixed = line.len() > RECORD_AT
        && line.starts_with(HASH)
        && line[LEAF_AT..].starts_with(PREV)
        && line[PREV_AT + 64..].starts_with(RECORD);
    if !fixed {
        return None;
    }
    let rest = match without_tag(line) {
        Some((before, _)) => before.get(RECORD_AT..)?,
        None => line[RECORD_AT..].strip_suffix(b"}")?,
    };
    let digits = rest.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (record, digits) = rest.split_at(rest.len() - digits);
    if digits.is_empty() || digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    let end = RECORD_AT + record.strip_suffix(SEQ)?.len();
    let seq = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((end, seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(record: &str, seq: u64) -> Vec<u8> {
        with(None, record, seq)
    }

    fn with(tags: Option<&TagKey>, record: &str, seq: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(record, seq, &Hash::of(b"before"), tags, &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_tagged_line_is_a_line_and_only_its_key_vouches_for_it() {
        let key = TagKey::derive(&[7; 32]);
        let mut bytes = with(Some(&key), "{\"a\":1}", 12);
        assert!(is_canonical(std::str::from_utf8(&bytes).expect("text")));
        let mut value: serde_json::Value = serde_json::from_slice(&bytes).expect("json");
        let hash = value["hash"].take();
        value.as_object_mut().expect("object").remove("hash");
        let leaf = crate::canonical::to_canonical(&value).expect("canonical");
        assert_eq!(hash, Hash::leaf(leaf.as_bytes()).to_string());
        let before = bytes.clone();
        assert!(is_vouched(&mut bytes, &key));
        assert!(!is_vouched(&mut bytes, &TagKey::derive(&[8; 32])));
        assert_eq!(bytes, before);
        let read = Line::check(&mut bytes).expect("good");
        assert_eq!((read.seq, read.record), (12, "{\"a\":1}"));
        assert_eq!(read.tag.map(str::len), Some(tag::DIGITS));
        assert!(!is_vouched(&mut line("{\"a\":1}", 12), &key));
        // Neither another line with the same tag, nor a changed one.
        let tail = &before[before.len() - TAG_SIZE..];
        let mut other = line("{\"a\":2}", 12);
        other.pop();
        other.extend_from_slice(tail);
        assert!(!is_vouched(&mut other, &key));
        for at in 0..before.len() {
            for bit in 0..8 {
                let mut bytes = before.clone();
                bytes[at] ^= 1 << bit;
                assert!(Line::check(&mut bytes).is_err(), "byte {at}, bit {bit}");
                // The hash is not under the tag: what is before it is.
                if at > LEAF_AT + 1 {
                    assert!(!is_vouched(&mut bytes, &key), "byte {at}, bit {bit}");
                }
            }
        }
        for end in 0..before.len() {
            assert!(Line::check(&mut before[..end].to_vec()).is_err());
            assert!(!is_vouched(&mut before[..end].to_vec(), &key));
        }
    }

    #[test]
    fn a_line_is_canonical_and_its_hash_covers_all_other_fields() {
        let mut bytes = line("{\"a\":1}", 12);
        assert!(is_canonical(std::str::from_utf8(&bytes).expect("text")));
        let mut value: serde_json::Value = serde_json::from_slice(&bytes).expect("json");
        let hash = value["hash"].take();
        value.as_object_mut().expect("object").remove("hash");
        let leaf = crate::canonical::to_canonical(&value).expect("canonical");
        assert_eq!(hash, Hash::leaf(leaf.as_bytes()).to_string());
        let before = bytes.clone();
        let read = Line::check(&mut bytes).expect("good");
        assert_eq!(read.hash.to_string(), hash);
        assert_eq!((read.seq, read.record), (12, "{\"a\":1}"));
        assert_eq!(read.prev, Hash::of(b"before"));
        assert_eq!(bytes, before);
    }

    #[test]
    fn every_changed_bit_is_seen() {
        let good = line("{\"a\":\"b\"}", 7);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(Line::check(&mut bytes).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_piece_of_a_line_is_no_line() {
        let good = line("{\"a\":\"b\"}", 7);
        for end in 0..good.len() {
            assert!(
                Line::check(&mut good[..end].to_vec()).is_err(),
                "cut at {end}"
            );
        }
    }
}
