//! Frames: one byte kind, four bytes channel, four bytes length, then the payload.

use thiserror::Error;

use crate::seal::{MARK, Seal};

pub const HEADER: usize = 9;
/// The longest payload of a data frame.
pub const MAX_DATA: usize = 64 * 1024;
/// The longest control message.
pub const MAX_CONTROL: usize = 1024 * 1024;
/// How many bytes may be in flight on one channel before the receiver grants more.
pub const WINDOW: u32 = 256 * 1024;

/// How much of the window a data frame to Brig uses. A small frame counts for more than its
/// payload, because queueing it costs more than its payload too.
pub fn cost(length: usize) -> u32 {
    const LEAST: usize = 512;
    u32::try_from(length.max(LEAST)).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message; see [`crate::ToGuest`] and [`crate::FromGuest`].
    Control = 1,
    /// Bytes of a channel.
    Data = 2,
    /// The channel has no more bytes.
    End = 3,
    /// The receiver of a channel accepts this many bytes more.
    Credit = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Kind::Control, Kind::Data, Kind::End, Kind::Credit]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn max_payload(self) -> usize {
        match self {
            Kind::Control => MAX_CONTROL,
            Kind::Data => MAX_DATA,
            Kind::End => 0,
            Kind::Credit => 4,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub channel: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The amount of a [`Kind::Credit`] frame.
    pub fn credit(&self) -> Option<u32> {
        match self.kind {
            Kind::Credit => self
                .payload
                .as_slice()
                .try_into()
                .ok()
                .map(u32::from_le_bytes),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("a frame of kind {kind:?} has {length} bytes")]
    Length { kind: Kind, length: usize },
    #[error("a frame does not come from the guest")]
    Seal,
}

/// Appends a frame to `out`. Panics if the payload is longer than its kind allows.
pub fn encode_into(out: &mut Vec<u8>, kind: Kind, channel: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).ok();
    let length = length.filter(|_| payload.len() <= kind.max_payload());
    let length = length.expect("frame payload too long");
    out.reserve(HEADER + payload.len());
    out.push(kind as u8);
    out.extend_from_slice(&channel.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(payload);
}

/// The same, with a mark if there is a seal.
pub fn encode_sealed(
    out: &mut Vec<u8>,
    seal: Option<&mut Seal>,
    kind: Kind,
    channel: u32,
    payload: &[u8],
) {
    let start = out.len();
    encode_into(out, kind, channel, payload);
    if let Some(seal) = seal {
        let mark = seal.mark(&out[start..]);
        out.extend_from_slice(&mark);
    }
}

pub fn encode(kind: Kind, channel: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, kind, channel, payload);
    out
}

/// Turns a byte stream, in pieces of any size, into frames.
///
/// Written by hand: `tokio_util`'s codecs need an async runtime, which the guest does not have.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    seal: Option<Seal>,
}

impl Decoder {
    /// For frames with a mark.
    pub fn sealed(seal: Option<Seal>) -> Self {
        Self {
            seal,
            ..Self::default()
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > MAX_DATA {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, if there is one. After an error the stream is unusable.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some((header, body)) = rest.split_at_checked(HEADER) else {
            return Ok(None);
        };
        let kind = Kind::from_byte(header[0]).ok_or(FrameError::Kind(header[0]))?;
        let channel = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        let length = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
        if length > kind.max_payload() || (kind == Kind::Credit && length != 4) {
            return Err(FrameError::Length { kind, length });
        }
        let Some(payload) = body.get(..length) else {
            return Ok(None);
        };
        let mut whole = HEADER + length;
        if let Some(seal) = &mut self.seal {
            let Some(mark) = rest.get(whole..whole + MARK) else {
                return Ok(None);
            };
            if mark != seal.mark(&rest[..whole]) {
                return Err(FrameError::Seal);
            }
            whole += MARK;
        }
        let frame = Frame {
            kind,
            channel,
            payload: payload.to_vec(),
        };
        self.start += whole;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let mut bytes = encode(Kind::Control, 0, b"hello");
        encode_into(&mut bytes, Kind::Data, 7, &[0; 1000]);
        encode_into(&mut bytes, Kind::End, 7, &[]);
        encode_into(&mut bytes, Kind::Credit, 9, &77u32.to_le_bytes());
        for piece in [1, 2, 3, 9, 10, 500, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for chunk in bytes.chunks(piece) {
                decoder.feed(chunk);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 4);
            assert_eq!(frames[0].payload, b"hello");
            assert_eq!(frames[1].payload.len(), 1000);
            assert_eq!(frames[3].credit(), Some(77));
        }
    }

    #[test]
    fn a_sealed_stream_takes_no_other_frames() {
        let sealed = |frames: &[(Kind, u32, &[u8])]| {
            let mut seal = Seal::new([7; 16]);
            let encode = |frame: &(Kind, u32, &[u8])| {
                let mut bytes = Vec::new();
                encode_sealed(&mut bytes, Some(&mut seal), frame.0, frame.1, frame.2);
                bytes
            };
            frames.iter().map(encode).collect::<Vec<_>>()
        };
        let decoded = |bytes: &[u8], piece: usize| {
            let mut decoder = Decoder::sealed(Some(Seal::new([7; 16])));
            let mut count = 0;
            for chunk in bytes.chunks(piece) {
                decoder.feed(chunk);
                while decoder.next_frame()?.is_some() {
                    count += 1;
                }
            }
            Ok(count)
        };
        let frames = sealed(&[
            (Kind::Control, 0, b"hello"),
            (Kind::Data, 3, &[1; 500]),
            (Kind::End, 3, &[]),
        ]);
        for piece in [1, 8, 9, 1000] {
            assert_eq!(decoded(&frames.concat(), piece), Ok(3));
        }
        let forged = encode(Kind::Data, 3, &[1; 500]);
        let (first, second) = (frames[0].as_slice(), frames[1].as_slice());
        for wrong in [
            [first, &forged, second].concat(),
            // What follows a header that nobody continues is no payload.
            [first, &forged[..HEADER], second, &frames[2]].concat(),
            [second, first].concat(),
            [first, first].concat(),
            frames[2].clone(),
        ] {
            assert_eq!(decoded(&wrong, 1000), Err(FrameError::Seal));
        }
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        for (kind, length) in [
            (1u8, MAX_CONTROL + 1),
            (2, MAX_DATA + 1),
            (3, 1),
            (4, 3),
            (4, 5),
            (2, u32::MAX as usize),
        ] {
            let mut decoder = Decoder::default();
            let mut header = vec![kind, 0, 0, 0, 0];
            header.extend_from_slice(&u32::try_from(length).expect("32 bits").to_le_bytes());
            decoder.feed(&header);
            assert!(matches!(
                decoder.next_frame(),
                Err(FrameError::Length { .. })
            ));
        }
        let mut decoder = Decoder::default();
        decoder.feed(&[0; HEADER]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Kind(0)));
    }
}
