//! The one program that runs inside every Linux sandbox: process 1, which starts programs, moves
//! their bytes, and serves files. It decides nothing; everything it is told comes from outside
//! over one stream, and when that stream closes, it ends, and the kernel ends all it started.

mod channel;
mod confine;
mod container;
mod files;
mod keeper;
mod proc;
mod relay;
mod serve;
mod setup;
mod task;
mod transfers;
mod trees;
mod usage;
mod watch;
mod yard;

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{FromGuest, Hello, ToGuest, VERSION};

use channel::Channel;

/// A failure and what was being done.
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
        // Process 1 of a container: the stream is what it was started with.
        let Ok((input, output)) = take_stdio() else {
            exit(2)
        };
        serve(Channel::new(input, Some(output)), None, Vec::new())
    }
    // The stream, a socket over which descriptors are handed out, and detached mounts: how many
    // of those is the one argument.
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

/// Takes the standard streams away from where programs would inherit them.
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
    let Some(hello) = greet(&mut channel) else {
        exit(2)
    };
    let yard = match setup::run(&hello, handoff.as_ref(), mounts) {
        Ok(yard) => {
            channel.send(&FromGuest::Ready { version: VERSION });
            yard
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
    // Only what asks outside needs it from now on.
    let handoff = handoff.filter(|_| !hello.confine.notify.is_empty());
    serve::run(channel, *hello, handoff, yard);
    exit(0)
}

fn greet(channel: &mut Channel) -> Option<Box<Hello>> {
    match channel.receive_blocking() {
        Ok(Some(ToGuest::Hello(hello))) if hello.version == VERSION => Some(hello),
        _ => None,
    }
}

fn exit(code: i32) -> ! {
    brig_linux::process::exit_now(code)
}
