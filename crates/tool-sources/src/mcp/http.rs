//! A server with streamable HTTP.
//!
//! The client of `rmcp` reads an answer of any size into memory, so posting is done here.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream::BoxStream};
use http::{HeaderName, HeaderValue, StatusCode, header};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::{Client, failed, lifecycles, serve};
use crate::SourceError;

/// The largest answer to one request, in bytes.
const LARGEST: usize = 16 << 20;
const SESSION: &str = "Mcp-Session-Id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

pub(super) async fn connect(
    server: &str,
    url: &str,
    headers: &[(String, String)],
) -> Result<Client, SourceError> {
    let problem = |text: &str| failed(server, text);
    let client = client().map_err(|error| problem(&error.to_string()))?;
    let mut all = Headers::new();
    for (name, value) in headers {
        let name: HeaderName = name
            .parse()
            .map_err(|_| problem("the name of a header is invalid"))?;
        let mut value: HeaderValue = value
            .parse()
            .map_err(|_| problem("the value of a header is invalid"))?;
        value.set_sensitive(true);
        all.insert(name, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(all)
        .max_sse_event_size(LARGEST);
    let mut first = None;
    for lifecycle in lifecycles() {
        let bounded = BoundedClient(client.clone());
        let transport = StreamableHttpClientTransport::with_client(bounded, config.clone());
        match serve(transport, lifecycle).await {
            Ok(client) => return Ok(client),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let error = first.map_or_else(String::new, |error| error.to_string());
    Err(problem(&format!("it does not answer: {error}")))
}

fn client() -> reqwest::Result<reqwest::Client> {
    // Fails only if somebody has chosen a provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        // Idle connections stall the next request by the time of a delayed ACK.
        .pool_max_idle_per_host(0)
        // Headers and arguments are for this server, not for one that it names.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// A client that reads no more than [`LARGEST`] of an answer.
#[derive(Clone)]
struct BoundedClient(reqwest::Client);

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let mut request = self
            .0
            .post(uri.as_ref())
            .header(header::ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(token) = auth_header {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &session_id {
            request = request.header(SESSION, session.as_ref());
        }
        let headers = custom_headers.into_iter().collect();
        let answer = request.headers(headers).json(&message).send().await;
        let answer = answer.map_err(StreamableHttpError::Client)?;
        let status = answer.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let text = |name| {
            answer
                .headers()
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let session = text(HeaderName::from_static("mcp-session-id")).map(str::to_owned);
        let kind = text(header::CONTENT_TYPE).unwrap_or_default().to_owned();
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        if kind.starts_with(EVENTS) && status.is_success() {
            let events = SseStream::from_bytes_stream(limited(answer)).boxed();
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !kind.starts_with(JSON) {
            return match status.is_success() && !is_request {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false => Err(unexpected(format!("HTTP {status}"))),
            };
        }
        let mut body = Vec::new();
        let mut stream = Box::pin(limited(answer));
        while let Some(part) = stream.next().await {
            body.extend_from_slice(&part.map_err(StreamableHttpError::Io)?);
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) if status.is_success() && !is_request => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            Err(_) => Err(unexpected(format!(
                "HTTP {status}, and no message of the protocol"
            ))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Error> {
        self.0
            .delete_session(uri, session_id, auth_header, custom_headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, sse_stream::Error>>, Error> {
        self.0
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                LARGEST,
            )
            .await
    }
}

fn unexpected(what: String) -> Error {
    StreamableHttpError::UnexpectedServerResponse(what.into())
}

/// The bytes of an answer, and an error where it becomes too large.
fn limited(answer: reqwest::Response) -> impl Stream<Item = std::io::Result<bytes::Bytes>> + Send {
    let mut left = LARGEST;
    answer.bytes_stream().map(move |part| {
        let part = part.map_err(std::io::Error::other)?;
        left = left.checked_sub(part.len()).ok_or_else(|| {
            std::io::Error::other(format!("the answer is larger than {LARGEST} bytes"))
        })?;
        Ok(part)
    })
}
