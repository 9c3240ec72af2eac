//! Bytes of a program as text in JSON.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Output;

/// Escaped text that waits to be written.
const PIECE: usize = 64 * 1024;

/// Bytes that are encoded at a time: whole groups of three.
const GROUPS: usize = 48 * 1024;

/// What is not UTF-8 is base64 in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoded<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

impl<'a> Encoded<'a> {
    pub(crate) fn of(output: &'a Output) -> Self {
        match std::str::from_utf8(&output.bytes) {
            Ok(text) => Self::Text(text),
            // The limit of the output may cut a character.
            Err(error) if output.truncated() && error.error_len().is_none() => {
                let whole = &output.bytes[..error.valid_up_to()];
                std::str::from_utf8(whole).map_or(Self::Binary(&output.bytes), Self::Text)
            }
            Err(_) => Self::Binary(&output.bytes),
        }
    }

    /// As it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text(_) => "utf-8",
            Self::Binary(_) => "base64",
        }
    }

    pub(crate) fn to_text(self) -> String {
        match self {
            Self::Text(text) => text.to_owned(),
            Self::Binary(bytes) => STANDARD.encode(bytes),
        }
    }

    /// A JSON string, written in pieces.
    pub(crate) fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let mut piece = Vec::with_capacity(PIECE);
        piece.push(b'"');
        match self {
            Self::Text(text) => escape(text.as_bytes(), &mut piece, out)?,
            Self::Binary(bytes) => {
                for group in bytes.chunks(GROUPS) {
                    push(STANDARD.encode(group).as_bytes(), &mut piece, out)?;
                }
            }
        }
        piece.push(b'"');
        out.write_all(&piece)
    }
}

fn escape(mut rest: &[u8], piece: &mut Vec<u8>, out: &mut dyn Write) -> io::Result<()> {
    let special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    while !rest.is_empty() {
        let look = &rest[..rest.len().min(PIECE / 2)];
        let plain = look.iter().position(special).unwrap_or(look.len());
        push(&rest[..plain], piece, out)?;
        rest = &rest[plain..];
        if plain == look.len() {
            continue;
        }
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        rest = after;
        let [high, low] =
            [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
        match byte {
            b'"' | b'\\' => push(&[b'\\', *byte], piece, out)?,
            b'\n' => push(b"\\n", piece, out)?,
            b'\r' => push(b"\\r", piece, out)?,
            b'\t' => push(b"\\t", piece, out)?,
            _ => push(&[b'\\', b'u', b'0', b'0', high, low], piece, out)?,
        }
    }
    Ok(())
}

fn push(bytes: &[u8], piece: &mut Vec<u8>, out: &mut dyn Write) -> io::Result<()> {
    if piece.len() + bytes.len() > PIECE {
        out.write_all(piece)?;
        piece.clear();
    }
    piece.extend_from_slice(bytes);
    Ok(())
}
