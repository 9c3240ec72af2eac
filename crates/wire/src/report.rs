//! What the guest reports: files, ended programs, started programs, use of resources.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::Transport;

/// The kernel that the guest runs on, as the kernel itself tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelIdentity {
    /// As `uname -r` prints it.
    pub release: String,
    /// `None` if the kernel does not tell.
    pub boot_id: Option<String>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub id: u32,
    /// As `waitpid` reports it.
    pub status: i32,
    /// Whether the guest ended it because its time was over.
    pub out_of_time: bool,
    pub cpu_microseconds: u64,
    /// Of the largest process.
    pub peak_memory_bytes: u64,
    pub stdout_total: u64,
    pub stderr_total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Other,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    pub name: Vec<u8>,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
}

/// The most bytes of a DNS query that are reported.
pub const MAX_QUERY: usize = 512;

/// Calls in a container that named the same unreachable address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreachable {
    pub transport: Transport,
    /// `None` if the guest could not read the address. Such a call was refused.
    pub to: Option<SocketAddr>,
    pub count: u32,
    /// The beginning of a DNS query, up to [`MAX_QUERY`] bytes. `count` is 1 then.
    pub query: Vec<u8>,
}

/// An `execve` in a container, as it was read from the calling process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The execution.
    pub id: u32,
    pub process: u32,
    pub parent: u32,
    /// The program that makes the call; `None` for the guest itself.
    pub caller: Option<String>,
    pub program: String,
    /// The resolved path, if the file exists.
    pub path: Option<String>,
    pub arguments: Vec<String>,
    /// The denied file that would be started through this one, as a script's interpreter or by a
    /// dynamic loader. Empty if such a file can't be determined.
    pub denied_file: Option<String>,
    pub refused: bool,
    pub outcome: ExecOutcome,
}

/// The result of an `execve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecOutcome {
    /// The program was started, or refused.
    #[default]
    Known,
    /// The kernel did not start it.
    Failed,
    /// The process was gone before that could be observed.
    Unconfirmed,
}

/// What a whole container uses, as its kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processes that the OOM killer ended.
    pub memory_kills: u64,
    /// Forks that failed at the limit of processes.
    pub refused: u64,
    /// In use now.
    pub memory_bytes: u64,
    /// The most since the container was started.
    pub peak_bytes: u64,
    pub processes: u32,
}
