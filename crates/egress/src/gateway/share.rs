//! Limits the buffers of connections. Code in the sandbox can open many connections and read from none,
//! and what arrives for them waits in the owner's memory.

use std::any::Any;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::net::TcpStream;

use super::{Gateway, Stream};

/// Up to this many connections, buffers are not limited.
const FREE: usize = 32;
/// Shared by all further connections, for each kind of buffer: the n-th gets an n-th of it.
const SHARED: usize = 16 << 20;
const LEAST: usize = 16 << 10;

impl Gateway {
    /// The largest buffer of a connection that is opened now.
    pub(super) fn share(&self) -> usize {
        let shared = &self.shared;
        let open = (shared.limits.connections).saturating_sub(shared.slots.available_permits());
        match open {
            0..=FREE => usize::MAX,
            _ => (SHARED / open).max(LEAST),
        }
    }

    /// Limits the kernel's buffers of a connection from the sandbox.
    pub(super) fn limit_stream<S: Stream>(&self, stream: &S) {
        if let Some(socket) = (stream as &dyn Any).downcast_ref() {
            self.limit_socket(socket);
        }
    }

    pub(super) fn limit_socket(&self, socket: &TcpStream) {
        let share = self.share();
        if share < usize::MAX {
            let _ = set_socket_recv_buffer_size(socket, share);
            let _ = set_socket_send_buffer_size(socket, share);
        }
    }
}
