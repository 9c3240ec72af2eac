//! What stand-ins for denied programs tell, over a pipe with a name: a line each, of words that hold
//! no tab and no line's end. Anyone inside can write there, so it is evidence and nothing else.

use std::os::fd::OwnedFd;

use brig_wire::FromGuest;
use rustix::fs::{Mode, OFlags};

use crate::channel::Channel;
use crate::{Failure, Step};

/// Longer lines are cut by whoever writes them: a pipe keeps no more together.
const LONGEST: usize = 4096;

#[derive(Debug)]
pub struct Told {
    pub pipe: OwnedFd,
    line: Vec<u8>,
}

impl Told {
    pub fn open(path: &str) -> Result<Self, Failure> {
        // With an end for writing of its own, so that it never ends.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = rustix::fs::open(path, flags, Mode::empty()).step(format!("open {path}"))?;
        Ok(Self {
            pipe,
            line: Vec::new(),
        })
    }

    pub fn read(&mut self, channel: &mut Channel) {
        let mut buffer = [0; LONGEST];
        let Ok(count) = rustix::io::read(&self.pipe, &mut buffer) else {
            return;
        };
        for byte in &buffer[..count] {
            if *byte == b'\n' {
                self.tell(channel);
            } else if self.line.len() < LONGEST {
                self.line.push(*byte);
            }
        }
    }

    fn tell(&mut self, channel: &mut Channel) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let words = text.split('\t').map(str::to_owned).collect();
        channel.send(&FromGuest::Denied { words });
    }
}
