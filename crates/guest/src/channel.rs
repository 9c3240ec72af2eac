//! The stream to the owner. Reads and writes never block the main loop.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brig_wire::{Decoder, Frame, FromGuest, Kind, MAX_DATA, Seal, SealKey, ToGuest, WINDOW};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::Failure;

#[derive(Debug)]
pub(crate) struct Channel {
    input: OwnedFd,
    output: OwnedFd,
    decoder: Decoder,
    outgoing: Vec<u8>,
    sent: usize,
    /// How much the owner accepts now, per channel.
    credit: BTreeMap<u32, u32>,
    /// Only in a container.
    seal: Option<Seal>,
}

impl Channel {
    /// Over one descriptor, or one for each direction.
    pub(crate) fn new(input: OwnedFd, output: Option<OwnedFd>) -> io::Result<Self> {
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
            seal: None,
        })
    }

    pub(crate) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn backlog(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// From now on everything that is sent has a mark.
    pub(crate) fn seal(&mut self, key: SealKey) {
        self.seal = Some(Seal::new(key));
    }

    fn push(&mut self, kind: Kind, channel: u32, payload: &[u8]) {
        let seal = self.seal.as_mut();
        brig_wire::encode_sealed(&mut self.outgoing, seal, kind, channel, payload);
    }

    pub(crate) fn send(&mut self, message: &FromGuest) {
        // Can't fail: messages are bounded where they are built.
        if let Ok(bytes) = brig_wire::to_bytes(message) {
            self.push(Kind::Control, 0, &bytes);
        }
    }

    /// A file request could not be served.
    pub(crate) fn send_failure(&mut self, id: u32, failure: Failure) {
        let errno = failure.errno();
        let step = failure.step;
        self.send(&FromGuest::Failed { id, step, errno });
    }

    /// Sends bytes, no more than [`Channel::room`].
    pub(crate) fn send_data(&mut self, channel: u32, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_DATA) {
            self.push(Kind::Data, channel, piece);
            let credit = self.credit.entry(channel).or_insert(WINDOW);
            *credit = credit.saturating_sub(brig_wire::cost(piece.len()));
        }
    }

    pub(crate) fn send_end(&mut self, channel: u32) {
        self.push(Kind::End, channel, &[]);
        self.forget(channel);
    }

    /// Nothing more will be sent on a channel.
    pub(crate) fn forget(&mut self, channel: u32) {
        self.credit.remove(&channel);
    }

    pub(crate) fn grant(&mut self, channel: u32, amount: usize) {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        self.push(Kind::Credit, channel, &amount.to_le_bytes());
    }

    /// How many bytes may be sent on a channel now.
    pub(crate) fn room(&self, channel: u32) -> usize {
        match self.credit.get(&channel).copied().unwrap_or(WINDOW) {
            credit if credit < brig_wire::cost(1) => 0,
            credit => credit as usize,
        }
    }

    pub(crate) fn credited(&mut self, channel: u32, amount: u32) {
        // Credit that arrives after the end of a channel is of no use.
        if let Some(credit) = self.credit.get_mut(&channel) {
            *credit = credit.saturating_add(amount);
        }
    }

    /// Writes as much as the socket accepts.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.has_outgoing() {
            match rustix::io::write(&self.output, &self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => {
                    // With a slow reader the buffer may never be empty. Sent bytes must not pile up.
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

    pub(crate) fn flush_blocking(&mut self) -> io::Result<()> {
        while self.has_outgoing() {
            self.flush()?;
            wait(&self.output, PollFlags::OUT)?;
        }
        Ok(())
    }

    /// Reads what is available into the decoder. `false`: the owner is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
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

    pub(crate) fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        self.decoder.next_frame().map_err(io::Error::other)
    }

    pub(crate) fn receive_blocking(&mut self) -> io::Result<Option<ToGuest>> {
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
