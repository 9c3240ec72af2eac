//! One connection of a program that calls tools: HTTP/1, every length bounded. A malformed request ends only
//! its connection.

use std::convert::Infallible;
use std::sync::Arc;

use brig_reason::ReasonCode;
use brig_sandbox::Arguments;
use brig_sandbox::tools::{CallError, MAX_ARGUMENTS, ToolGate};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Executions;

/// The most bytes of a request: the arguments, and what is around them.
const MAX_BODY: usize = MAX_ARGUMENTS + 4096;
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// The most values in a request.
const MAX_PARTS: usize = 100_000;

/// The body of AGT's `POST /call_tool`.
#[derive(Deserialize)]
struct Call {
    tool: String,
    #[serde(default)]
    args: Arguments,
}

pub(super) async fn serve<S>(executions: Arc<Executions>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(|request| {
        let executions = Arc::clone(&executions);
        async move { Ok::<_, Infallible>(answer(&executions, request).await) }
    });
    let connection = Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that fails has told its client.
    let _ = connection.await;
}

/// What a request leads to: JSON, or why there is none.
type Answered = Result<Vec<u8>, (StatusCode, CallError)>;

async fn answer(executions: &Executions, request: Request<Incoming>) -> Response<Full<Bytes>> {
    // For programs that don't read JSON: the result alone, or a line that says what is wrong.
    let accepted = request.headers().get(ACCEPT);
    let plain = accepted.is_some_and(|accepted| accepted == "text/plain");
    let (status, body) = match (route(executions, request).await, plain) {
        (Ok(result), true) => (StatusCode::OK, result),
        (Ok(result), false) => {
            let parts: [&[u8]; 3] = [br#"{"result":"#, &result, b"}"];
            (StatusCode::OK, parts.concat())
        }
        (Err((status, CallError { code, message })), true) => {
            (status, format!("{message} [{code}]").into_bytes())
        }
        (Err((status, CallError { code, message })), false) => {
            let body = json!({ "error": message, "code": code });
            (status, body.to_string().into_bytes())
        }
    };
    let kind = match plain {
        true => "text/plain; charset=utf-8",
        false => "application/json",
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn route(executions: &Executions, request: Request<Incoming>) -> Answered {
    let path = request.uri().path().to_owned();
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let gate = parts.next().and_then(|token| executions.get(token));
    let Some(gate) = gate else {
        return refuse(
            StatusCode::NOT_FOUND,
            ReasonCode::ToolUnavailable,
            "no running execution has this address; use the variable TOOL_PROXY_URL",
        );
    };
    match (request.method(), parts.next()) {
        (&Method::POST, Some("call_tool")) => call(&gate, request.into_body()).await,
        (&Method::GET, Some("tools")) => Ok(list(&gate)),
        _ => refuse(
            StatusCode::NOT_FOUND,
            ReasonCode::ToolUnknown,
            "use POST $TOOL_PROXY_URL/call_tool or GET $TOOL_PROXY_URL/tools",
        ),
    }
}

async fn call(gate: &ToolGate, body: Incoming) -> Answered {
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                ReasonCode::ToolArguments,
                "the arguments are too large; do not retry, pass less",
            );
        }
        Err(_) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                ReasonCode::ToolArguments,
                "the request ended too early",
            );
        }
    };
    if parts_of(&body) > MAX_PARTS {
        return refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            ReasonCode::ToolArguments,
            "the arguments have too many values; do not retry, pass less",
        );
    }
    let turn = gate.turn().await;
    let turn = turn.map_err(|error| (status(error.code), error))?;
    let Ok(Call { tool, args }) = serde_json::from_slice(&body) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            ReasonCode::ToolArguments,
            r#"send {"tool": NAME, "args": {…}} as JSON"#,
        );
    };
    let result = gate.call(turn, &tool, args).await;
    result.map_err(|error| (status(error.code), error))
}

/// About how many values a text of JSON has: a value can take a hundred times as much memory as its text.
fn parts_of(json: &[u8]) -> usize {
    let (mut parts, mut quoted, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => parts += 1,
            _ => {}
        }
    }
    parts
}

/// The tools that may be called, as MCP lists them.
fn list(gate: &ToolGate) -> Vec<u8> {
    let tools = gate.tools().specs().map(|spec| {
        json!({
            "name": spec.name,
            "description": spec.description,
            "inputSchema": spec.input_schema,
        })
    });
    Value::from_iter(tools).to_string().into_bytes()
}

fn refuse(status: StatusCode, code: ReasonCode, message: &str) -> Answered {
    let message = message.to_owned();
    Err((status, CallError { code, message }))
}

fn status(code: ReasonCode) -> StatusCode {
    match code {
        ReasonCode::ToolNotAllowed | ReasonCode::ToolDenied | ReasonCode::ToolApproval => {
            StatusCode::FORBIDDEN
        }
        ReasonCode::ToolArguments => StatusCode::BAD_REQUEST,
        ReasonCode::ToolTooMany => StatusCode::TOO_MANY_REQUESTS,
        ReasonCode::ToolTimeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use super::parts_of;

    #[test]
    fn values_are_counted_outside_of_strings() {
        assert_eq!(parts_of(br#"{"a":[1,2,{"b":3}],"c":"d"}"#), 6);
        assert_eq!(parts_of(br#"{"text":"a,b,[{\",,,"}"#), 1);
    }
}
