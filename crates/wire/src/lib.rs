//! The protocol between Brig and the guest inside a sandbox: frames on one duplex byte stream, and
//! the messages they carry.
//!
//! Neither side trusts the other's bytes: every length is bounded before anything is allocated,
//! and a malformed frame ends the connection.

mod frame;
mod message;
mod report;
mod seal;
mod setup;

pub use frame::{
    Decoder, Frame, FrameError, HEADER, Kind, MAX_CONTROL, MAX_DATA, WINDOW, cost, encode,
    encode_into, encode_sealed,
};
pub use message::{
    Base, FromGuest, GUEST_CHANNEL, LISTING_PART, MAX_DATAGRAM, MessageError, Spawn, ToGuest, Tree,
    VERSION, Writers, from_bytes, to_bytes,
};
pub use report::{
    Exec, ExecOutcome, Exit, FileInfo, FileKind, KernelIdentity, MAX_QUERY, Unreachable, Usage,
};
pub use seal::{Seal, SealKey};
pub use setup::{
    Confine, Container, DeniedPrograms, ExpectedMount, Hello, HostDirectory, ListenerSpec,
    MAX_LISTENERS, Mediation, MountSource, Network, Nonce, Rlimit, RootSource, Setup, SetupStep,
    Transport,
};
