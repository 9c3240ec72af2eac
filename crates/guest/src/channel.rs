//! The stream to the outside: frames in, frames out, never blocking the loop.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_wire::{Decoder, Frame, FromGuest, Kind, MAX_DATA, ToGuest, WINDOW};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::Failure;

#[derive(Debug)]
pub struct Channel {
    input: OwnedFd,
    output: OwnedFd,
    decoder: Decoder,
    outgoing: Vec<u8>,
    sent: usize,
    /// What the other side takes at the moment, per channel that we send on.
    credit: BTreeMap<u32, u32>,
}

impl Channel {
    /// Over one descriptor, or one for each direction.
    pub fn new(input: OwnedFd, output: Option<OwnedFd>) -> io::Result<Self> {
        let output = match output {
            Some(output) => output,
            None => rustix::io::fcntl_dupfd_cloexec(&input, 3)?,
        };
        rustix::io::ioctl_fionbio(&input, true)?;
        rustix::io::ioctl_fionbio(&output, true)?;
        Ok(Self {
            input,
            output,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            sent: 0,
            credit: BTreeMap::new(),
        })
    }

    pub fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    pub fn has_outgoing(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Bytes that wait to be sent.
    pub fn backlog(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    pub fn send(&mut self, message: &FromGuest) {
        // Messages of ours that would be too long are bounded where they are built.
        if let Ok(bytes) = brig_wire::to_bytes(message) {
            brig_wire::encode_into(&mut self.outgoing, Kind::Control, 0, &bytes);
        }
    }

    /// A file request could not be served.
    pub fn send_failure(&mut self, id: u32, failure: Failure) {
        let errno = failure.errno();
        let step = failure.step;
        self.send(&FromGuest::Failed { id, step, errno });
    }

    /// Bytes for a channel; the caller has asked [`Channel::room`] before.
    pub fn send_data(&mut self, channel: u32, bytes: &[u8]) {
        let credit = self.credit.entry(channel).or_insert(WINDOW);
        for piece in bytes.chunks(MAX_DATA) {
            brig_wire::encode_into(&mut self.outgoing, Kind::Data, channel, piece);
            *credit = credit.saturating_sub(brig_wire::cost(piece.len()));
        }
    }

    pub fn send_end(&mut self, channel: u32) {
        brig_wire::encode_into(&mut self.outgoing, Kind::End, channel, &[]);
        self.forget(channel);
    }

    /// Nothing more will be sent on a channel.
    pub fn forget(&mut self, channel: u32) {
        self.credit.remove(&channel);
    }

    pub fn grant(&mut self, channel: u32, amount: u32) {
        brig_wire::encode_into(
            &mut self.outgoing,
            Kind::Credit,
            channel,
            &amount.to_le_bytes(),
        );
    }

    /// How many bytes may be sent on a channel now.
    pub fn room(&self, channel: u32) -> usize {
        match self.credit.get(&channel).copied().unwrap_or(WINDOW) {
            credit if credit < brig_wire::cost(1) => 0,
            credit => credit as usize,
        }
    }

    pub fn credited(&mut self, channel: u32, amount: u32) {
        // What comes after the end of a channel is for nobody.
        if let Some(credit) = self.credit.get_mut(&channel) {
            *credit = credit.saturating_add(amount);
        }
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.has_outgoing() {
            match rustix::io::write(&self.output, &self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    // With a slow reader it may never be empty: what was sent must not pile up.
                    if self.sent > MAX_DATA {
                        self.outgoing.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(MAX_DATA);
        self.sent = 0;
        Ok(())
    }

    pub fn flush_blocking(&mut self) -> io::Result<()> {
        while self.has_outgoing() {
            self.flush()?;
            wait(&self.output, PollFlags::OUT)?;
        }
        Ok(())
    }

    /// Reads what is there into the decoder. `false`: the other side is gone.
    pub fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 32 * 1024];
        match rustix::io::read(&self.input, &mut buffer) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.decoder.feed(&buffer[..count]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        self.decoder.next_frame().map_err(io::Error::other)
    }

    pub fn receive_blocking(&mut self) -> io::Result<Option<ToGuest>> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return match frame.kind {
                    Kind::Control => brig_wire::from_bytes(&frame.payload)
                        .map(Some)
                        .map_err(io::Error::other),
                    _ => Ok(None),
                };
            }
            wait(&self.input, PollFlags::IN)?;
            if !self.fill()? {
                return Ok(None);
            }
        }
    }
}

fn wait(stream: &OwnedFd, flags: PollFlags) -> io::Result<()> {
    match rustix::event::poll(&mut [PollFd::new(stream, flags)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_does_not_make_sent_bytes_pile_up() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut channel = Channel::new(ours.into(), None).unwrap();
        let mut piece = vec![0; 32 * 1024];
        channel.send_data(1, &vec![7; 1024 * 1024]);
        channel.flush().unwrap();
        for _ in 0..1000 {
            channel.send_data(1, &piece);
            channel.flush().unwrap();
            assert!(channel.has_outgoing(), "the reader is not slow");
            std::io::Read::read_exact(&mut &theirs, &mut piece).unwrap();
        }
        assert!(channel.outgoing.len() < 8 * 1024 * 1024);
    }
}
