//! How much memory a connection may fill. Whoever is inside can open many and read from none; what
//! has come for them waits in buffers of the owner.

use std::any::Any;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::net::TcpStream;

use super::{Gateway, Stream};

/// So many connections have buffers as large as they can use.
const FREE: usize = 32;
/// Shared by those beyond, for each kind of buffer: the n-th has an n-th of it.
const SHARED: usize = 16 << 20;
const LEAST: usize = 16 << 10;

impl Gateway {
    /// The bytes that a buffer of a connection which is opened now may hold.
    pub(super) fn share(&self) -> usize {
        let shared = &self.shared;
        let open = (shared.limits.connections).saturating_sub(shared.slots.available_permits());
        match open {
            0..=FREE => usize::MAX,
            _ => (SHARED / open).max(LEAST),
        }
    }

    /// Holds the kernel's buffers of a connection from inside to its share.
    pub(super) fn bound_stream<S: Stream>(&self, stream: &S) {
        if let Some(socket) = (stream as &dyn Any).downcast_ref() {
            self.bound(socket);
        }
    }

    pub(super) fn bound(&self, socket: &TcpStream) {
        let share = self.share();
        if share < usize::MAX {
            let _ = set_socket_recv_buffer_size(socket, share);
            let _ = set_socket_send_buffer_size(socket, share);
        }
    }
}
