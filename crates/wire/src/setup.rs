//! What the guest is told once, in its first message: what the root consists of, which sockets to
//! open, and how programs are confined.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::seal::SealKey;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub confine: Confine,
    pub root: RootSource,
    pub workspace: String,
}

/// Where the sandbox's root comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RootSource {
    /// The guest assembles it.
    Setup(Box<Setup>),
    /// A container engine has assembled it already.
    Container(Box<Container>),
}

/// What a guest does in a container. It has no capabilities there, so executions share one PID
/// namespace, and connections to its listeners are relayed over the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub mounts: Vec<ExpectedMount>,
    pub listeners: Vec<ListenerSpec>,
    /// Programs that stand-ins have already replaced in the image. Others with these names are
    /// refused where `execve` is watched.
    pub denied: Option<DeniedPrograms>,
    /// Whether the container has a kernel of its own, so that machine-wide counters are the
    /// container's.
    pub own_kernel: bool,
    /// Whether it has a control group of its own, so that the counters there are the container's.
    pub own_group: bool,
    /// The first of the addresses that DNS hands out, a /15. A connection to one of them is a
    /// connection to a name.
    pub pool: [u8; 4],
    /// A guest that hears nothing for this long has lost its owner, and exits. The stream does not always
    /// end with the owner: an engine that was killed leaves it open.
    pub max_silence: Duration,
    /// A file that only the owner's machine has, and its content.
    pub nonce: Option<Nonce>,
    /// The host directories that can be written. Nothing else on a disk can be. `None`: the root can be written.
    pub writable: Option<Vec<String>>,
    /// A read-only mount with files that need not be sent.
    pub cache: Option<String>,
    /// For the marks on what the guest sends.
    pub seal: SealKey,
}

/// Proves that the engine mounts files of the owner's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce {
    pub path: String,
    pub content: String,
}

/// A host file or directory that an engine must have mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedMount {
    pub target: String,
    /// Device and inode.
    pub identity: (u64, u64),
    pub writable: bool,
}

/// How every program in the sandbox is confined, in addition to its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confine {
    /// A compiled seccomp filter, one instruction per number. Empty: no filter.
    pub seccomp: Vec<u64>,
    pub rlimits: Vec<Rlimit>,
    /// Landlock: where programs may write. They may read and execute everywhere.
    pub writable: Vec<String>,
    /// The Landlock ABI version that is required. 0: Landlock is not used.
    pub landlock: u32,
    /// The only files that may be executed. `None`: all may be.
    pub executable: Option<Vec<String>>,
    /// A compiled seccomp filter that notifies a listener. Empty: no filter. The listener of every
    /// execution is handed out together with the execution's id.
    pub notify: Vec<u64>,
    /// Whether `notify` includes starts of programs.
    pub watches_commands: bool,
    /// Who answers the notifications that are not about starts of programs.
    pub mediation: Mediation,
    /// What the caller has mounted. No sockets are created there.
    pub host_directories: Vec<HostDirectory>,
}

/// A mounted host directory, by its path in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDirectory {
    pub path: String,
    pub writable: bool,
}

/// Who makes the calls that programs may not make by themselves: `connect` where host directories
/// are mounted, because those may contain sockets of host programs; netlink sockets, because the
/// kernel does not limit their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mediation {
    /// Nobody. The filter does not notify about such calls.
    #[default]
    None,
    /// A connector process, started by the guest.
    Inside,
    /// The same, but the owner has the listener and relays the calls to the connector.
    Relayed,
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
    /// Whether the caller's supplementary groups can and must be dropped.
    pub drop_groups: bool,
    pub hostname: String,
    /// Size of the one writable file system.
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub read_only_root: bool,
    /// A directory that becomes the root. `None`: the root consists of the steps alone.
    pub rootfs: Option<MountSource>,
    pub steps: Vec<SetupStep>,
    pub network: Network,
    /// Entries of /proc that are covered in every execution.
    pub hidden_proc: Vec<String>,
    pub read_only_proc: Vec<String>,
    pub denied: Option<DeniedPrograms>,
}

/// Programs that a stand-in replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedPrograms {
    /// The inherited descriptor of the stand-in. Not used in a container.
    pub shim: u32,
    /// A directory that contains the stand-in under each of these names.
    pub directory: String,
    pub names: Vec<String>,
    /// Files that the stand-in covers. Their paths contain no symbolic links, and need not be UTF-8.
    pub covered: Vec<Vec<u8>>,
    /// Denied paths without a cover, because nothing is there yet.
    pub elsewhere: Vec<String>,
}

/// Sockets in the sandbox's network namespace that are served from outside. They are handed out in
/// this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// A second address for the loopback interface. With 127.0.0.1 alone, `getaddrinfo` with
    /// `AI_ADDRCONFIG` treats IPv4 as unavailable.
    pub address: Option<[u8; 4]>,
    pub listeners: Vec<ListenerSpec>,
    /// TCP sockets that are handed out unbound, for ports that turn out to be needed later.
    pub free: u8,
}

/// The most listeners that one message carries.
pub const MAX_LISTENERS: usize = 64;

/// A socket to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSpec {
    pub transport: Transport,
    pub address: [u8; 4],
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    Tcp,
    Udp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountSource {
    /// Opened without following any symbolic link. Must have this device and inode, if given.
    Path {
        path: String,
        identity: Option<(u64, u64)>,
    },
    /// A detached mount, inherited under this descriptor number.
    Mount(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetupStep {
    Directory {
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
        source: MountSource,
        target: String,
        writable: bool,
    },
    /// A host device that is safe to share.
    Device {
        path: String,
    },
    /// A directory of the writable file system.
    Private {
        name: String,
        target: String,
        mode: u32,
    },
    /// A writable layer over read-only directories, lowest first.
    Overlay {
        lower: Vec<MountSource>,
        name: String,
        target: String,
    },
    /// A directory of the writable file system that starts as a copy of another.
    Copy {
        source: MountSource,
        name: String,
        target: String,
    },
    /// Covers a mounted file or directory with an empty one. It must exist.
    Hide {
        path: Vec<u8>,
        /// Device and inode.
        identity: (u64, u64),
    },
    /// Binds a mounted directory to itself, because a mount point can't be renamed or removed. It
    /// must exist.
    Pin {
        path: Vec<u8>,
        /// Device and inode.
        identity: (u64, u64),
    },
    Pts,
}
