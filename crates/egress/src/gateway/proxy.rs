//! The proxy port: SOCKS5 or HTTP.

use bytes::BytesMut;
use tokio::time::timeout;

use super::stream::Prefixed;
use super::{Gateway, Stream, http, socks};

pub(super) async fn serve<S: Stream>(gateway: &Gateway, stream: S) {
    let mut stream = Prefixed::new(stream, BytesMut::new());
    match timeout(gateway.shared.limits.asking, stream.fill()).await {
        Ok(Ok(1..)) => {}
        _ => return,
    }
    match stream.prefix().first() {
        Some(&socks::VERSION) => socks::serve(gateway, stream).await,
        _ => http::serve_proxy(gateway, stream).await,
    }
}
