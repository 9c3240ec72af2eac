//! DNS over UDP, on a socket that the guest has opened. Calls never block, even if the guest has kept a
//! copy of the socket and made it blocking. An answer that can't be sent at once is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Gateway, lock};

/// No legitimate query is longer.
const LONGEST: usize = 4096;
/// Queries that are answered before other tasks get their turn.
const BATCH: usize = 64;

/// Answers DNS queries of one sandbox.
#[derive(Debug)]
pub struct DnsSocket {
    socket: UdpSocket,
    gateway: Gateway,
    /// Held while a query is read, answered and recorded, so that [`DnsSocket::answer_all`] can wait
    /// for it.
    reading: Mutex<()>,
}

impl DnsSocket {
    /// To be called in a runtime.
    pub fn new(socket: OwnedFd, gateway: Gateway) -> io::Result<Self> {
        let socket = std::net::UdpSocket::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            gateway,
            reading: Mutex::default(),
        })
    }

    /// Answers queries until the socket fails.
    pub async fn serve(&self) {
        loop {
            let answered = self
                .socket
                .async_io(Interest::READABLE, || Ok(self.answer()?));
            match answered.await {
                Ok(()) => tokio::task::yield_now().await,
                Err(_) => return,
            }
        }
    }

    /// When this returns, all queries that were sent before are recorded.
    pub fn answer_all(&self) {
        // Bounded, because others may go on sending.
        for _ in 0..16 {
            if self.answer().is_err() {
                return;
            }
        }
    }

    /// Fails if there is nothing to answer.
    fn answer(&self) -> Result<(), Errno> {
        let _alone = lock(&self.reading);
        let mut packet = [0; LONGEST];
        for turn in 0..BATCH {
            let (length, from) = match recvfrom(&self.socket, &mut packet[..], RecvFlags::DONTWAIT)
            {
                Ok((length, _, Some(from))) => (length, from),
                Ok((_, _, None)) | Err(Errno::INTR | Errno::CONNREFUSED) => continue,
                // Temporary shortage.
                Err(Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(Errno::AGAIN) if turn > 0 => return Ok(()),
                Err(error) => return Err(error),
            };
            if let Some(answer) = packet
                .get(..length)
                .and_then(|query| self.gateway.answer_dns(query))
            {
                let _ = sendto(&self.socket, &answer, SendFlags::DONTWAIT, &from);
            }
        }
        Ok(())
    }
}
