//! TLS records, and handshake messages that may span several of them.

use super::{CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, LONGEST};

/// Length of a record header.
pub(super) const HEADER: usize = 5;
/// The longest body of a record, with what encryption adds.
const BODY: usize = 16 * 1024 + 2048;

/// A record, as far as it was received.
pub(super) enum Record<'a> {
    More,
    Wrong,
    /// The header of a record of this type. The body is incomplete.
    Partial(u8),
    Whole(u8, &'a [u8]),
}

/// The record at the beginning of the bytes.
pub(super) fn record(bytes: &[u8]) -> Record<'_> {
    let wrong = |at: usize, valid: fn(u8) -> bool| bytes.get(at).is_some_and(|byte| !valid(*byte));
    if wrong(0, |kind| (CHANGE_CIPHER_SPEC..=DATA).contains(&kind))
        || wrong(1, |major| major == 3)
        || wrong(2, |minor| minor <= 4)
    {
        return Record::Wrong;
    }
    let Some(([kind, _, _, high, low], rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Record::More;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > BODY || (length == 0 && *kind != DATA) {
        return Record::Wrong;
    }
    match rest.get(..length) {
        Some(body) => Record::Whole(*kind, body),
        None => Record::Partial(*kind),
    }
}

/// Where a handshake message ends.
pub(super) enum Length {
    More,
    /// At the end of a record, so many bytes after the beginning of the first one.
    Ends(usize),
    /// In the middle of a record.
    Beyond,
}

/// The first handshake message, as far as it was received. `None` if its records are malformed.
pub(super) fn handshake(bytes: &[u8]) -> Option<(Vec<u8>, Length)> {
    let (mut message, mut at) = (Vec::new(), 0);
    loop {
        let body = match record(&bytes[at..]) {
            Record::More => return Some((message, Length::More)),
            Record::Partial(HANDSHAKE) => {
                message.extend_from_slice(bytes.get(at + HEADER..).unwrap_or_default());
                return Some((message, Length::More));
            }
            Record::Whole(HANDSHAKE, body) => body,
            _ => return None,
        };
        message.extend_from_slice(body);
        at += HEADER + body.len();
        if let Some([_, length @ ..]) = message.first_chunk::<4>() {
            let whole = 4 + length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            if whole > LONGEST {
                return None;
            }
            if message.len() >= whole {
                let end = match message.len() == whole {
                    true => Length::Ends(at),
                    false => Length::Beyond,
                };
                return Some((message, end));
            }
        }
    }
}
