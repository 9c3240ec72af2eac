//! What each side does with the bytes of the other. Used by the fuzz targets and, with mutated
//! messages, by an ordinary test of the `wire` crate.

use std::fmt::Debug;

use brig_wire::{
    Decoder, Frame, FrameError, HEADER, Kind, MAX_CONTROL, MAX_DATA, encode_into, from_bytes,
    to_bytes,
};
use serde::{Serialize, de::DeserializeOwned};

/// Takes bytes that may be anything as messages of type `M`. Returns how many were accepted.
pub(crate) fn receive<M: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> usize {
    let whole = frames(bytes, bytes.len().max(1));
    let pieces = frames(
        bytes,
        1 + bytes.first().map_or(0, |byte| usize::from(byte % 23)),
    );
    assert_eq!(
        whole, pieces,
        "the way the bytes are split changes what they say"
    );

    let (frames, _) = whole;
    let mut again = Vec::new();
    let mut accepted = 0;
    for frame in &frames {
        let most = if frame.kind == Kind::Control {
            MAX_CONTROL
        } else {
            MAX_DATA
        };
        assert!(frame.payload.len() <= most);
        assert_eq!(frame.credit().is_some(), frame.kind == Kind::Credit);
        encode_into(&mut again, frame.kind, frame.channel, &frame.payload);
        if frame.kind == Kind::Control
            && let Ok(message) = from_bytes::<M>(&frame.payload)
        {
            accepted += 1;
            // What was accepted can be said again, and means the same.
            let said = to_bytes(&message).expect("an accepted message is not too long");
            assert_eq!(
                from_bytes::<M>(&said).expect("own bytes are well formed"),
                message
            );
        }
    }
    assert!(
        bytes.starts_with(&again),
        "frames hold what was sent and nothing else"
    );
    assert!(again.len() >= frames.len() * HEADER);
    accepted
}

fn frames(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for chunk in bytes.chunks(piece) {
        decoder.feed(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}
