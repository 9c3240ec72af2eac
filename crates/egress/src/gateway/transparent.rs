//! Connections of programs that know of no proxy.

use std::net::SocketAddr;

use brig_hosts::Host;
use bytes::BytesMut;

use super::stream::Prefixed;
use super::{Gateway, Stream, lock, refuse, tunnel};
use crate::decision::Protocol;

pub(super) async fn serve<S: Stream>(gateway: &Gateway, stream: S, dialled: SocketAddr) {
    let stream = Prefixed::new(stream, BytesMut::new());
    let host = match lock(&gateway.shared.pool).name(dialled) {
        Some(name) => Host::Name(name),
        None => Host::from(dialled.ip()),
    };
    match gateway.open(&host, dialled.port(), Protocol::Tcp).await {
        Ok(opened) => tunnel::serve(gateway, stream, opened).await,
        Err(decision) => refuse::tell(gateway, stream, &decision).await,
    }
}
