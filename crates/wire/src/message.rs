//! The messages in control frames, and their encoding.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{Exec, Exit, FileInfo, Hello, KernelIdentity, MAX_CONTROL, Unreachable, Usage};

/// Both sides must have the same version. The guest is embedded, so they always do.
pub const VERSION: u16 = 1;

/// The most names that one [`FromGuest::Listing`] carries.
pub const LISTING_PART: usize = 512;

#[derive(Debug, Error)]
pub enum MessageError {
    #[error("malformed message")]
    Malformed,
    #[error("the message has {0} bytes, more than {MAX_CONTROL}")]
    TooLong(usize),
}

pub fn to_bytes<T: Serialize>(message: &T) -> Result<Vec<u8>, MessageError> {
    let bytes = postcard::to_stdvec(message).map_err(|_| MessageError::Malformed)?;
    if bytes.len() > MAX_CONTROL {
        Err(MessageError::TooLong(bytes.len()))
    } else {
        Ok(bytes)
    }
}

pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(MessageError::Malformed),
    }
}

/// From Brig to the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToGuest {
    /// Always the first message.
    Hello(Box<Hello>),
    Spawn(Box<Spawn>),
    /// The owner is there. Sent to a guest in a container several times in [`Container::max_silence`].
    ///
    /// [`Container::max_silence`]: crate::Container::max_silence
    Heartbeat,
    /// End an execution with its whole process tree, a transfer, or a relayed connection.
    Kill {
        id: u32,
    },
    /// Send a signal to the main process of an execution.
    Signal {
        id: u32,
        signal: i32,
    },
    Resize {
        id: u32,
        rows: u16,
        columns: u16,
    },
    /// Write the bytes of `channel` to a file.
    Put {
        id: u32,
        base: Base,
        path: String,
        mode: u32,
        channel: u32,
    },
    /// Send a file on `channel`.
    Get {
        id: u32,
        path: String,
        channel: u32,
    },
    List {
        id: u32,
        path: String,
    },
    /// Send a tree on `channel`, as a stream of records: only what changed since the last time,
    /// unless `fresh` is set.
    Save {
        id: u32,
        channel: u32,
        tree: Tree,
        fresh: bool,
        writers: Writers,
    },
    /// Write the stream of records on `channel` into a tree.
    Fill {
        id: u32,
        channel: u32,
        tree: Tree,
    },
    /// Look for programs with these names in these directories.
    Find {
        id: u32,
        names: Vec<String>,
        directories: Vec<String>,
    },
    /// The answer to a [`FromGuest::Datagram`].
    Datagram {
        listener: u32,
        from: ([u8; 4], u16),
        bytes: Vec<u8>,
    },
}

/// From the guest to Brig.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromGuest {
    Ready {
        version: u16,
        /// Only in a container.
        kernel: Option<KernelIdentity>,
    },
    /// The sandbox could not be set up; the guest ends.
    SetupFailed {
        step: String,
        errno: i32,
    },
    /// The program could not be started; nothing ran.
    SpawnFailed {
        id: u32,
        step: String,
        errno: i32,
    },
    Exited(Exit),
    /// A file request was served.
    Done {
        id: u32,
        bytes: u64,
    },
    Failed {
        id: u32,
        step: String,
        errno: i32,
    },
    /// A part of a directory listing.
    Listing {
        id: u32,
        entries: Vec<FileInfo>,
        last: bool,
    },
    /// Before the end of a [`ToGuest::Fill`]: the files of the cache that are as the owner said, and when each was
    /// last changed. At most [`LISTING_PART`] in a message.
    ///
    /// [`LISTING_PART`]: crate::LISTING_PART
    Checked {
        id: u32,
        files: Vec<(u64, (i64, u32))>,
    },
    /// The paths of the programs of a [`ToGuest::Find`], in its order.
    Found {
        id: u32,
        paths: Vec<Option<String>>,
    },
    /// Sent while something runs in a container.
    Usage(Usage),
    /// A listener accepted a connection. Both sides send on `channel`, a number that the guest
    /// chooses and that has [`GUEST_CHANNEL`] set.
    Accepted {
        listener: u32,
        address: ([u8; 4], u16),
        channel: u32,
    },
    /// A listener received a datagram.
    Datagram {
        listener: u32,
        from: ([u8; 4], u16),
        bytes: Vec<u8>,
    },
    /// A program was started in a container, or could not be.
    Exec(Box<Exec>),
    /// Calls in a container named an address that can't be reached from it.
    Unreachable(Box<Unreachable>),
}

/// Set in the numbers of channels that the guest opens.
pub const GUEST_CHANNEL: u32 = 1 << 31;

/// The most bytes of a datagram that is relayed.
pub const MAX_DATAGRAM: usize = 4096;

/// One program to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    pub id: u32,
    pub argv: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    /// Where it starts if it can't enter that directory.
    pub otherwise: Option<String>,
    pub stdin: Option<u32>,
    pub stdout: u32,
    pub stderr: u32,
    /// Rows and columns. With a terminal, stdout and stderr are one stream.
    pub terminal: Option<(u16, u16)>,
    /// After this time the guest ends it, if the owner has not.
    pub timeout: Duration,
    /// How many bytes of each stream are sent. The rest is only counted.
    pub output_limit: u64,
    /// A directory below the guest's own that is removed when the program has ended.
    pub scratch: Option<String>,
    /// A directory in the sandbox. Links to what is in it are put into `scratch`.
    pub beside: Option<String>,
}

/// What a path is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Workspace,
    /// The guest's own directory, where source code is put.
    Run,
}

/// Who can have written to files since they were sent the last time. A write through a mapping need not change
/// any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writers {
    /// No program.
    None,
    /// Programs that had mapped no file by then.
    Later,
    Any,
}

/// Files that are saved and restored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    Workspace,
    /// The workspace, and everything below the root that the sandbox's user may have changed.
    Root,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_bytes_are_malformed() {
        let mut bytes = to_bytes(&ToGuest::Kill { id: 7 }).unwrap();
        assert_eq!(
            from_bytes::<ToGuest>(&bytes).unwrap(),
            ToGuest::Kill { id: 7 }
        );
        bytes.push(0);
        assert!(from_bytes::<ToGuest>(&bytes).is_err());
    }

    #[test]
    fn a_message_that_is_too_long_is_not_made() {
        let message = ToGuest::List {
            id: 1,
            path: "x".repeat(MAX_CONTROL),
        };
        assert!(matches!(to_bytes(&message), Err(MessageError::TooLong(_))));
    }
}
