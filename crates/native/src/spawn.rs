//! Starting the guest: cloned into its namespaces, held at a gate until its ids and limits are in
//! place, then let go.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use brig_linux::clone::{ALL_NAMESPACES, Child, Gate, Gated, spawn_gated};
use brig_sandbox::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::cgroup::Group;
use crate::identity::{INSIDE, Identity};
use crate::limits::Means;

/// Dropped, the process ends first, so that its group is free to go.
#[derive(Debug)]
pub struct Spawned {
    pub process: Child,
    pub gate: Gate,
    pub stream: UnixStream,
    /// Where the guest hands descriptors out.
    pub handoff: OwnedFd,
    pub group: Option<Group>,
}

pub async fn start(
    identity: &Identity,
    means: &Means,
    mut group: Option<Group>,
    mounts: Vec<OwnedFd>,
) -> Result<Spawned> {
    let setup = |step: &str| {
        let step = step.to_owned();
        move |error: io::Error| Error::Setup {
            step,
            problem: error.to_string(),
        }
    };
    let program = program().map_err(setup("prepare the guest program"))?;
    let null = std::fs::File::open("/dev/null").map_err(setup("open /dev/null"))?;
    let (stream, stream_inside) = UnixStream::pair().map_err(setup("make a stream"))?;
    stream
        .set_nonblocking(true)
        .map_err(setup("make a stream"))?;
    let (handoff, handoff_inside) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| setup("make a socket")(error.into()))?;
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![stream_inside.as_fd(), handoff_inside.as_fd()];
    descriptors.extend(mounts.iter().map(AsFd::as_fd));
    let count = CString::new(mounts.len().to_string()).map_err(|_| Error::Setup {
        step: "count mounts".into(),
        problem: "a number with a zero byte".into(),
    })?;

    let tasks: Vec<BorrowedFd<'_>> = group.iter().flat_map(Group::tasks).collect();
    let waiting = spawn_gated(&Gated {
        namespaces: ALL_NAMESPACES,
        program: program.as_fd(),
        argv: &[c"brig-guest", &count],
        descriptors: &descriptors,
        null: null.as_fd(),
        cgroup: group.as_ref().and_then(Group::start_in),
        tasks: &tasks,
    })
    .map_err(unavailable)?;
    let pid = waiting.pid();
    write_maps(pid, identity).map_err(setup("map ids"))?;
    means.pin(pid).map_err(setup("set the processors"))?;
    if let Some(group) = &mut group {
        group
            .attach(pid)
            .await
            .map_err(setup("enter the control group"))?;
    }
    let (process, gate) = waiting.release().map_err(setup("release the guest"))?;
    Ok(Spawned {
        process,
        gate,
        stream,
        handoff,
        group,
    })
}

fn unavailable(error: io::Error) -> Error {
    let problem = match error.raw_os_error() {
        Some(libc_eperm) if libc_eperm == Errno::PERM.raw_os_error() => {
            "this system does not let you make user namespaces (look at \
             kernel.apparmor_restrict_unprivileged_userns and kernel.unprivileged_userns_clone)"
                .to_owned()
        }
        Some(nospc) if nospc == Errno::NOSPC.raw_os_error() => {
            "no more namespaces are allowed (look at user.max_user_namespaces)".to_owned()
        }
        _ => error.to_string(),
    };
    Error::Unavailable {
        backend: "native",
        problem,
    }
}

/// One id inside, one outside. Nobody else exists in there.
fn write_maps(pid: u32, identity: &Identity) -> io::Result<()> {
    let write = |file: &str, text: String| std::fs::write(format!("/proc/{pid}/{file}"), text);
    if !identity.root {
        write("setgroups", "deny".into())?;
    }
    write("uid_map", format!("{INSIDE} {} 1", identity.uid))?;
    write("gid_map", format!("{INSIDE} {} 1", identity.gid))
}

/// The guest as a sealed memory file: nobody can change it, and no path leads to it. Copied once
/// per process.
fn program() -> io::Result<&'static OwnedFd> {
    static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    let program = PROGRAM.get_or_init(copy_program).as_ref();
    program.map_err(|error| io::Error::from(*error))
}

/// Copies the guest's program while there are other things to do.
pub fn prepare() {
    // Without the thread, it is copied when it is needed.
    let _ = std::thread::Builder::new()
        .name("guest".into())
        .spawn(|| drop(program()));
}

fn copy_program() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels don't know the flag that asks for an executable file; there it always is.
    let file = match rustix::fs::memfd_create(c"brig-guest", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(c"brig-guest", flags)?,
        made => made?,
    };
    let mut bytes = brig_guest_image::GUEST;
    while !bytes.is_empty() {
        let written = rustix::io::write(&file, bytes)?;
        bytes = &bytes[written..];
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}
