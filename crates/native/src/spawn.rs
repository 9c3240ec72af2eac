//! Starts the guest: clones it into its namespaces, where it waits at a gate until its ids and limits are set.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use brig_linux::clone::{ALL_NAMESPACES, Child};
use brig_linux::gate::{Gate, GatedProgram, spawn_gated};
use brig_sandbox::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::backend::ID;
use crate::cgroup::Group;
use crate::forks;
use crate::identity::{INSIDE, Identity};
use crate::limits::LimitMechanisms;
use crate::nesting;

/// When this is dropped, the process is killed first, so that its group can be removed.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub process: Child,
    pub gate: Gate,
    pub stream: UnixStream,
    /// Where the guest hands out descriptors.
    pub handoff: OwnedFd,
    pub group: Option<Group>,
}

pub(crate) async fn start(
    identity: &Identity,
    mechanisms: &LimitMechanisms,
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
    forks::remember(&stream);
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
    let waiting = spawn_gated(&GatedProgram {
        namespaces: ALL_NAMESPACES,
        program: program.as_fd(),
        argv: &[c"brig-guest", &count],
        descriptors: &descriptors,
        null: null.as_fd(),
        cgroup: group.as_ref().and_then(Group::start_in),
        tasks: &tasks,
    })
    .map_err(|error| Error::Unavailable {
        backend: ID.clone(),
        cause: nesting::no_namespaces(&error),
    })?;
    let pid = waiting.pid();
    write_maps(pid, identity).map_err(setup("map ids"))?;
    mechanisms.pin(pid).map_err(setup("set the CPU affinity"))?;
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

/// One id inside, one outside. No other ids exist in the sandbox.
fn write_maps(pid: u32, identity: &Identity) -> io::Result<()> {
    let write = |file: &str, text: String| std::fs::write(format!("/proc/{pid}/{file}"), text);
    if !identity.is_root() {
        write("setgroups", "deny".into())?;
    }
    write("uid_map", format!("{INSIDE} {} 1", identity.uid))?;
    write("gid_map", format!("{INSIDE} {} 1", identity.gid))
}

/// The guest as a sealed memory file: it can't be changed, and has no path. Copied once per process.
fn program() -> io::Result<&'static OwnedFd> {
    static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    let program = PROGRAM.get_or_init(copy_program).as_ref();
    program.map_err(|error| io::Error::from(*error))
}

/// Copies the guest's program in the background.
pub(crate) fn prepare() {
    // Without the thread, it is copied when it is needed.
    let _ = std::thread::Builder::new()
        .name("guest".into())
        .spawn(|| drop(program()));
}

fn copy_program() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 don't know the flag. There memory files are always executable.
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
