//! The program that runs as PID 1 in every Linux sandbox. It starts programs, relays their streams
//! and serves file requests. It decides nothing: the owner controls it over one stream. When that
//! stream closes, the guest exits, and the kernel kills everything that it has started.

mod addresses;
mod caller_files;
mod channel;
mod confine;
mod connector;
mod connectors;
mod container_check;
mod container_init;
mod files;
mod keeper;
mod keeper_report;
mod mounts;
mod pipe_key;
mod proc;
mod process_tree;
mod quotas;
mod relay;
mod serve;
mod setup;
mod stand_ins;
mod streams;
mod task;
mod transfers;
mod usage;
mod watch;

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{FromGuest, Hello, Mediation, RootSource, ToGuest, VERSION};

use channel::Channel;

/// An error and the step that failed.
#[derive(Debug)]
pub struct Failure {
    pub step: String,
    pub error: io::Error,
}

/// Names the step at which an operation failed.
pub trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step: step.into(),
            error: error.into(),
        })
    }
}

impl Failure {
    pub fn errno(&self) -> i32 {
        self.error
            .raw_os_error()
            .unwrap_or(rustix::io::Errno::IO.raw_os_error())
    }
}

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "stdio" {
        // In a container, the stream is stdin and stdout.
        let Ok((input, output)) = take_stdio() else {
            exit(2)
        };
        serve(Channel::new(input, Some(output)), None, Vec::new())
    }
    // Inherited: the stream, a socket for handing out descriptors, and as many detached mounts as the
    // argument says.
    let mounts = argument.parse().unwrap_or(0usize);
    let Some(inherited) = brig_linux::process::take_inherited(2 + mounts) else {
        exit(2)
    };
    let mut inherited = inherited.into_iter();
    let (Some(stream), Some(handoff)) = (inherited.next(), inherited.next()) else {
        exit(2)
    };
    serve(
        Channel::new(stream, None),
        Some(handoff),
        inherited.collect(),
    )
}

/// Moves the standard streams to other descriptors, so that programs don't inherit them.
fn take_stdio() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::stdio::{dup2_stdin, dup2_stdout, stdin, stdout};
    let input = rustix::io::fcntl_dupfd_cloexec(stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok((input, output))
}

fn serve(channel: io::Result<Channel>, handoff: Option<OwnedFd>, mounts: Vec<OwnedFd>) -> ! {
    let Ok(mut channel) = channel else { exit(2) };
    let Some(hello) = receive_hello(&mut channel) else {
        exit(2)
    };
    if let RootSource::Container(container) = &hello.root {
        channel.seal(container.seal);
    }
    let set_up = setup::run(&hello, handoff.as_ref(), mounts)
        .and_then(|container| Ok((container, connectors::Connectors::open(&hello)?)));
    let (container, connectors) = match set_up {
        Ok(set_up) => {
            let kernel = set_up.0.as_ref().map(|_| container_check::kernel());
            channel.send(&FromGuest::Ready {
                version: VERSION,
                kernel,
            });
            set_up
        }
        Err(failure) => {
            let errno = failure.errno();
            channel.send(&FromGuest::SetupFailed {
                step: failure.step,
                errno,
            });
            let _ = channel.flush_blocking();
            exit(1);
        }
    };
    // From now on only needed for the listeners of filters that notify the owner.
    let confine = &hello.confine;
    let notifies_owner = !confine.notify.is_empty() && confine.mediation != Mediation::Inside;
    let handoff = handoff.filter(|_| notifies_owner);
    serve::run(channel, *hello, handoff, container, connectors);
    exit(0)
}

fn receive_hello(channel: &mut Channel) -> Option<Box<Hello>> {
    match channel.receive_blocking() {
        Ok(Some(ToGuest::Hello(hello))) if hello.version == VERSION => Some(hello),
        _ => None,
    }
}

fn exit(code: i32) -> ! {
    brig_linux::process::exit_now(code)
}
