//! Connections of programs that don't use a proxy.

use std::net::SocketAddr;

use bytes::BytesMut;

use super::stream::Prefixed;
use super::{Gateway, Stream, refuse, tunnel};
use crate::decision::Protocol;

pub(super) async fn serve<S: Stream>(gateway: &Gateway, stream: S, dialled: SocketAddr) {
    let stream = Prefixed::new(stream, BytesMut::new());
    // Held to the end, so that the address keeps its name.
    let (host, _in_use) = gateway.host_behind(dialled);
    match gateway.open(&host, dialled.port(), Protocol::Tcp).await {
        Ok(opened) => tunnel::serve(gateway, stream, opened).await,
        Err(decision) => refuse::refuse_in_protocol(gateway, stream, &decision).await,
    }
}
