//! The protocol between Brig and the guest inside a sandbox: frames on one duplex byte stream,
//! and the messages they carry.
//!
//! Neither side trusts the other's bytes: every length is bounded before anything is allocated,
//! and a malformed frame ends the connection.

mod frame;
mod message;

pub use frame::{
    Decoder, Frame, FrameError, HEADER, Kind, MAX_CONTROL, MAX_DATA, WINDOW, cost, encode,
    encode_into,
};
pub use message::{
    Base, Confine, Container, Denied, Door, Entry, EntryKind, Exec, Exit, FromGuest, GUEST_CHANNEL,
    Hello, LISTING_PART, MAX_DATAGRAM, MAX_DOORS, MessageError, Network, Place, Rlimit, Setup,
    Source, Spawn, Step, ToGuest, Transport, Tree, Usage, VERSION, from_bytes, to_bytes,
};
