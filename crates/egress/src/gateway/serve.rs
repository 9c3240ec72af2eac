//! Accepts on listeners that were made inside the sandbox.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use tokio::io::Interest;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use super::{Entry, Gateway};

impl Gateway {
    /// Accepts until the listener fails. Dropping the future closes all connections.
    pub async fn serve(&self, listener: TcpListener, entry: Entry) -> io::Result<Infallible> {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_passing(&error) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (Some(place), Ok(dialled)) = (self.place(entry), stream.local_addr()) else {
                continue;
            };
            // Small messages are what proxies carry.
            let _ = stream.set_nodelay(true);
            let gateway = self.clone();
            connections.spawn(async move {
                let dialled = Some(dialled);
                gateway.serve_stream(stream, entry, dialled, place).await;
            });
        }
    }

    /// Answers DNS over UDP until the socket fails. Never waits in a call, whatever somebody with a
    /// copy of the socket made of it; an answer that can't be sent at once is lost.
    pub async fn serve_udp(&self, socket: UdpSocket) -> io::Result<Infallible> {
        let mut packet = vec![0; 4096];
        loop {
            let receive = || {
                let received = recvfrom(&socket, &mut packet[..], RecvFlags::DONTWAIT);
                Ok(received.map(|(length, _, from)| (length, from))?)
            };
            let (length, from) = match socket.async_io(Interest::READABLE, receive).await {
                Ok((length, Some(from))) => (length, from),
                Ok((_, None)) => continue,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            if let Some(answer) = packet
                .get(..length)
                .and_then(|query| self.answer_dns(query))
            {
                let _ = sendto(&socket, &answer, SendFlags::DONTWAIT, &from);
            }
        }
    }
}

/// About one connection, or about a lack that passes: no reason to stop serving.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    // ENFILE, EMFILE, ENOBUFS, ENOMEM
    matches!(error.raw_os_error(), Some(23 | 24 | 105 | 12))
        || matches!(
            error.kind(),
            ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
        )
}
