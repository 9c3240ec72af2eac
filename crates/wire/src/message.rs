//! What the two sides say to each other.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::MAX_CONTROL;

/// Both sides must speak the same version; the guest is embedded, so they always do.
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
    /// End the whole tree of an execution, or a transfer, at once.
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
    /// Write what comes on `channel` to a file.
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
    /// Send a tree on `channel`, as a stream of records: without what was sent the last time,
    /// unless it is to be sent afresh.
    Save {
        id: u32,
        channel: u32,
        tree: Tree,
        fresh: bool,
    },
    /// Put what comes on `channel`, a stream of records, into a tree.
    Fill {
        id: u32,
        channel: u32,
        tree: Tree,
    },
    /// Look for programs of these names in these folders.
    Find {
        id: u32,
        names: Vec<String>,
        folders: Vec<String>,
    },
    /// What a datagram of [`FromGuest::Datagram`] is answered with.
    Datagram {
        door: u32,
        from: ([u8; 4], u16),
        bytes: Vec<u8>,
    },
}

/// From the guest to Brig.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromGuest {
    Ready {
        version: u16,
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
    /// A part of a listing; the last part says so.
    Listing {
        id: u32,
        entries: Vec<Entry>,
        last: bool,
    },
    /// Where the programs are that were looked for, in that order.
    Found {
        id: u32,
        paths: Vec<Option<String>>,
    },
    /// How much is used, while something runs in a container.
    Usage(Usage),
    /// Somebody came to a door. Both sides send on `channel`, a number of the guest's choice that
    /// has [`GUEST_CHANNEL`] set.
    Dialled {
        door: u32,
        address: ([u8; 4], u16),
        channel: u32,
    },
    /// Somebody sent a datagram to a door.
    Datagram {
        door: u32,
        from: ([u8; 4], u16),
        bytes: Vec<u8>,
    },
    /// A program is about to be started in a container.
    Exec(Box<Exec>),
}

/// Set in the numbers of channels that the guest opens.
pub const GUEST_CHANNEL: u32 = 1 << 31;

/// The most bytes of a datagram that is relayed.
pub const MAX_DATAGRAM: usize = 4096;

/// What is asked for, as it was read of whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The execution.
    pub id: u32,
    pub process: u32,
    pub parent: u32,
    /// What asks; nothing for the guest itself.
    pub running: Option<String>,
    pub program: String,
    /// The file that it is, without links, if there is one.
    pub path: Option<String>,
    pub words: Vec<String>,
    pub refused: bool,
}

/// What a whole container uses, as its kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processes that were killed for want of memory.
    pub memory_kills: u64,
    /// Processes that were refused.
    pub refused: u64,
    /// In use now, and the most since the beginning.
    pub memory_bytes: u64,
    pub peak_bytes: u64,
    pub processes: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub confine: Confine,
    pub place: Place,
    pub workspace: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// The guest builds it.
    Own(Box<Setup>),
    /// Something else, such as a container engine, has built it already.
    Container(Container),
}

/// What a guest does in a container. It has no capabilities there, so executions share one process
/// namespace, and what comes to its doors is relayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// What must be mounted, and its device and inode.
    pub mounts: Vec<(String, (u64, u64))>,
    pub doors: Vec<Door>,
    /// Programs that a stand-in takes the place of already. Others of these names are refused,
    /// where somebody watches.
    pub denied: Option<Denied>,
    /// Whether its kernel is the container's own, so that what that counts is the container's.
    pub own_kernel: bool,
}

/// What every program in the sandbox is held by, beside its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confine {
    /// A compiled seccomp filter, one instruction per number; empty: none is used.
    pub seccomp: Vec<u64>,
    pub rlimits: Vec<Rlimit>,
    /// Landlock: where programs may write. They may read and execute everywhere.
    pub writable: Vec<String>,
    /// The Landlock version that must hold; 0: it is not used.
    pub landlock: u32,
    /// The only files that may be executed; nothing: all may be.
    pub executable: Option<Vec<String>>,
    /// A compiled seccomp filter that asks outside; empty: none is used. Who is to be asked is
    /// handed out for every execution, with its number.
    pub notify: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// A `RLIMIT_` number.
    pub resource: u32,
    pub value: u64,
}

/// How to assemble the root, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub uid: u32,
    pub gid: u32,
    /// Whether the caller's groups can and must be given up.
    pub drop_groups: bool,
    pub hostname: String,
    /// Of the one writable file system.
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub read_only_root: bool,
    /// A folder that becomes the root; without it the root is made of the steps alone.
    pub rootfs: Option<Source>,
    pub steps: Vec<Step>,
    /// The way out, if there is one.
    pub network: Option<Network>,
    /// Entries of /proc that are covered in every execution.
    pub hidden_proc: Vec<String>,
    pub read_only_proc: Vec<String>,
    pub denied: Option<Denied>,
}

/// Programs that a stand-in takes the place of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The stand-in: a file, inherited under this number. Of no meaning in a container.
    pub shim: u32,
    /// A folder that holds it under each of these names.
    pub folder: String,
    pub names: Vec<String>,
    /// Files that it covers, where they are. Their paths hold no links.
    pub covered: Vec<String>,
}

/// Sockets in the sandbox's network namespace that are served from outside. They are handed out in
/// this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Addresses that lead to these sockets, beside those of loopback: the first, and how many bits
    /// they share.
    pub range: ([u8; 4], u8),
    pub doors: Vec<Door>,
}

/// The most doors that one message carries.
pub const MAX_DOORS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub transport: Transport,
    pub address: [u8; 4],
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    Tcp,
    Udp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Opened without following any symbolic link, and checked to be this device and inode if given.
    Path {
        path: String,
        identity: Option<(u64, u64)>,
    },
    /// A detached mount, inherited under this number.
    Mount(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Folder {
        path: String,
        mode: u32,
    },
    File {
        path: String,
        content: Vec<u8>,
    },
    Symlink {
        path: String,
        target: String,
    },
    Bind {
        source: Source,
        target: String,
        writable: bool,
    },
    /// A device of the host that is harmless to share.
    Device {
        path: String,
    },
    /// A folder of the writable file system.
    Private {
        name: String,
        target: String,
        mode: u32,
    },
    /// A writable folder over read-only ones, lowest first.
    Overlay {
        lower: Vec<Source>,
        name: String,
        target: String,
    },
    /// A folder of the writable file system that holds a copy of another.
    Copy {
        source: Source,
        name: String,
        target: String,
    },
    Pts,
}

/// One program to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    pub id: u32,
    pub argv: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub stdin: Option<u32>,
    pub stdout: u32,
    pub stderr: u32,
    /// Rows and columns; stdout and stderr are then one stream.
    pub terminal: Option<(u16, u16)>,
    /// Bytes of each stream that are sent; the rest is counted.
    pub output_limit: u64,
    /// A folder below the guest's own that is removed when the program has ended.
    pub scratch: Option<String>,
}

/// What a path is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Workspace,
    /// The guest's own folder, where source code is put.
    Run,
}

/// Files that are saved and put back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    Workspace,
    /// The workspace, and whatever else the user of the sandbox may have changed below the root.
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub id: u32,
    /// As of `waitpid`.
    pub status: i32,
    pub cpu_microseconds: u64,
    /// Of the largest process.
    pub peak_memory_bytes: u64,
    pub stdout_total: u64,
    pub stderr_total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    File,
    Folder,
    Link,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
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
