//! The one program that runs inside every Linux sandbox: process 1, which starts programs, moves
//! their bytes, and serves files. It decides nothing; everything it is told comes from outside
//! over one stream, and when that stream closes, it ends, and the kernel ends all it started.

mod channel;
mod confine;
mod files;
mod keeper;
mod proc;
mod serve;
mod setup;
mod task;

use std::io;

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
    // The stream, a socket over which descriptors are handed out, and detached mounts: how many
    // of those is the one argument.
    let mounts = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(0usize);
    let Some(inherited) = brig_linux::process::take_inherited(2 + mounts) else {
        exit(2)
    };
    let mut inherited = inherited.into_iter();
    let (Some(stream), Some(handoff)) = (inherited.next(), inherited.next()) else {
        exit(2)
    };
    let Ok(mut channel) = Channel::new(stream) else {
        exit(2)
    };
    let Some(hello) = greet(&mut channel) else {
        exit(2)
    };

    match setup::run(&hello, &handoff, inherited.collect()) {
        Ok(()) => channel.send(&FromGuest::Ready { version: VERSION }),
        Err(failure) => {
            let errno = failure.errno();
            channel.send(&FromGuest::SetupFailed {
                step: failure.step,
                errno,
            });
            let _ = channel.flush_blocking();
            exit(1);
        }
    }
    // Only what asks outside needs it from now on.
    let handoff = (!hello.confine.notify.is_empty()).then_some(handoff);
    serve::run(channel, *hello, handoff);
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
