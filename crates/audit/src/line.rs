//! One line of the log: `{"hash":…,"prev":…,"record":{…},"seq":N}`.
//!
//! The whole line is canonical JSON. `hash` sorts first, so the line without it is `{` and what
//! follows: the leaf of the tree, over which `hash` is the RFC 6962 leaf hash. `prev` is the hash
//! of the line before.

use crate::Hash;
use crate::canonical::is_canonical;

const HASH: &[u8] = b"{\"hash\":\"";
const PREV: &[u8] = b"\",\"prev\":\"";
const RECORD: &[u8] = b"\",\"record\":";
const SEQ: &[u8] = b",\"seq\":";

const HASH_AT: usize = HASH.len();
const PREV_AT: usize = HASH_AT + 64 + PREV.len();
const RECORD_AT: usize = PREV_AT + 64 + RECORD.len();
/// Where the leaf begins, in place of the quote and the comma after the hash: the prefix of a
/// leaf, and the opening brace.
const LEAF_AT: usize = HASH_AT + 64;
const LEAF: [u8; 2] = [0, b'{'];

/// Adds one line to `out`, and gives its hash.
pub fn write(record: &str, seq: u64, prev: &Hash, out: &mut Vec<u8>) -> Hash {
    let start = out.len();
    out.extend_from_slice(HASH);
    out.extend_from_slice(&[b'0'; 64]);
    out.extend_from_slice(PREV);
    out.extend_from_slice(&prev.hex());
    out.extend_from_slice(RECORD);
    out.extend_from_slice(record.as_bytes());
    out.extend_from_slice(SEQ);
    out.extend_from_slice(seq.to_string().as_bytes());
    out.push(b'}');
    let line = &mut out[start..];
    let hash = leaf(line);
    line[HASH_AT..LEAF_AT].copy_from_slice(&hash.hex());
    out.push(b'\n');
    hash
}

/// The hash that a line should have. The line is as before when this returns.
fn leaf(line: &mut [u8]) -> Hash {
    // In place, so that nothing is copied and the hash runs over one piece.
    let saved = [line[LEAF_AT], line[LEAF_AT + 1]];
    line[LEAF_AT..LEAF_AT + 2].copy_from_slice(&LEAF);
    let hash = Hash::of(&line[LEAF_AT..]);
    line[LEAF_AT..LEAF_AT + 2].copy_from_slice(&saved);
    hash
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// It is no line of a log.
    Format,
    /// It is not what its hash was made of.
    Hash,
}

/// A line whose form and hash are right.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub hash: Hash,
    pub prev: Hash,
    pub seq: u64,
    /// The canonical JSON of the record.
    pub record: &'a str,
}

impl<'a> Line<'a> {
    /// Reads a line, without its newline, and checks its hash. The line is left as it is.
    pub fn check(line: &'a mut [u8]) -> Result<Self, Flaw> {
        let (end, seq) = numbered(line).ok_or(Flaw::Format)?;
        let hash = leaf(line);
        if line[HASH_AT..LEAF_AT] != hash.hex() {
            return Err(Flaw::Hash);
        }
        let line: &'a [u8] = line;
        let prev = Hash::from_hex(&line[PREV_AT..PREV_AT + 64]).ok_or(Flaw::Format)?;
        let record = std::str::from_utf8(&line[RECORD_AT..end]).map_err(|_| Flaw::Format)?;
        if !is_canonical(record) {
            return Err(Flaw::Format);
        }
        Ok(Self {
            hash,
            prev,
            seq,
            record,
        })
    }

    /// The number of a line, whatever else is wrong with it.
    pub fn seq(line: &[u8]) -> Option<u64> {
        numbered(line).map(|(_, seq)| seq)
    }
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
    let rest = line[RECORD_AT..].strip_suffix(b"}")?;
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
        let mut out = Vec::new();
        write(record, seq, &Hash::of(b"before"), &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        out
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
