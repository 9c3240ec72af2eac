//! Tells a client that it was denied, as far as its protocol can express it.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::first::{FirstBytes, first_bytes};
use super::stream::Prefixed;
use super::{Gateway, Stream};
use crate::decision::{Decision, Reason};

/// How long a client may take to read a refusal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A fatal alert, `access_denied`.
pub(super) const TLS_ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];

/// The reason code, in every HTTP answer of the gateway itself.
pub(super) const REASON_HEADER: &str = "x-brig-reason";

pub(super) fn status(decision: &Decision) -> StatusCode {
    match decision.reason {
        Reason::Malformed(_) | Reason::Protocol(_) => StatusCode::BAD_REQUEST,
        Reason::Unresolved(_) | Reason::Unreachable(_) => StatusCode::BAD_GATEWAY,
        Reason::Unrecorded | Reason::Limit(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::FORBIDDEN,
    }
}

pub(super) fn answer(decision: &Decision) -> Response<Body> {
    let text = Full::new(Bytes::from(format!("{decision}\n")));
    let mut response = Response::new(text.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status(decision);
    let headers = response.headers_mut();
    headers.insert(
        REASON_HEADER,
        HeaderValue::from_static(decision.reason.code()),
    );
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The same answer as bytes, for a connection that was not HTTP until now.
fn answer_bytes(decision: &Decision) -> Vec<u8> {
    let text = format!("{decision}\n");
    let status = status(decision);
    format!(
        "HTTP/1.1 {} {}\r\n{REASON_HEADER}: {}\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{text}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        decision.reason.code(),
        text.len(),
    )
    .into_bytes()
}

/// Refuses a client that connected without a proxy, in the protocol that it uses.
pub(super) async fn refuse_in_protocol<S: Stream>(
    gateway: &Gateway,
    mut stream: Prefixed<S>,
    decision: &Decision,
) {
    let asking = gateway.shared.limits.asking;
    let spoken = async {
        while first_bytes(stream.prefix()) == FirstBytes::More && stream.prefix().len() < 1024 {
            if stream.fill().await.unwrap_or(0) == 0 {
                break;
            }
        }
        first_bytes(stream.prefix())
    };
    let answer = match timeout(asking, spoken).await {
        Ok(FirstBytes::Http) => answer_bytes(decision),
        Ok(FirstBytes::Tls) => TLS_ALERT.to_vec(),
        _ => return,
    };
    answer_and_close(stream, &answer).await;
}

/// Writes an answer, and gives the client time to read it.
pub(super) async fn answer_and_close<S: Stream>(mut stream: Prefixed<S>, answer: &[u8]) {
    if let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, stream.write_all(answer)).await {
        close_gracefully(stream).await;
    }
}

/// Closes a connection so that the client can read the answer. With unread bytes in the socket, the
/// kernel would send a reset, and the client could lose the answer.
pub(super) async fn close_gracefully<S: Stream>(mut stream: Prefixed<S>) {
    let closed = async {
        stream.shutdown().await?;
        let mut rest = 0;
        while rest < 256 * 1024 {
            match stream.drain().await? {
                0 => break,
                more => rest += more,
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, closed).await;
}
