//! Why a request has no result, in the words of the service as far as they can be shown.

use std::time::Duration;

use serde_json::Value;

use crate::client::read;

/// Of a message of the service, in an error.
const LONGEST_MESSAGE: usize = 300;

/// Why a request has no result.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// There is no token, so nothing was sent.
    NoToken { problem: String, fix: &'static str },
    /// No connection, so nothing was sent.
    NotSent(String),
    /// It was sent, and may have been done.
    NoAnswer(String),
    /// An answer that is no success.
    Refused {
        status: u16,
        title: String,
        detail: String,
        retry_after: Option<Duration>,
    },
    /// A success that makes no sense.
    Unreadable(String),
}

impl Failure {
    /// Whether it may have been done all the same.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Failure::NoToken { .. } | Failure::NotSent(_) => false,
            Failure::NoAnswer(_) | Failure::Unreadable(_) => true,
            Failure::Refused { status, .. } => *status >= 500 || *status == 408,
        }
    }

    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Failure::NoToken { .. } | Failure::Unreadable(_) => false,
            Failure::NotSent(_) | Failure::NoAnswer(_) => true,
            Failure::Refused { status, .. } => matches!(status, 408 | 429 | 500..),
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Failure::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the sandbox is suspended, or on its way there or back.
    pub(crate) fn is_not_running(&self) -> bool {
        self.status() == Some(409)
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Failure::NoToken { problem, .. } => format!("no token: {problem}"),
            Failure::NotSent(problem) => format!("no connection: {problem}"),
            Failure::NoAnswer(problem) => format!("no answer: {problem}"),
            Failure::Unreadable(problem) => format!("the answer makes no sense: {problem}"),
            Failure::Refused {
                status,
                title,
                detail,
                ..
            } => {
                let parts = [title.as_str(), detail.as_str()];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                let status = match status {
                    429 => "too many requests (429)".to_owned(),
                    status => format!("status {status}"),
                };
                match parts.is_empty() {
                    true => status,
                    false => format!("{status}: {}", parts.join(": ")),
                }
            }
        }
    }
}

/// Problem details of the service, or the envelope of Azure Resource Manager.
pub(crate) async fn refused(response: reqwest::Response, secret: &str) -> Failure {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let mut bytes = Vec::new();
    // What can't be read of it is left out; the status is what counts.
    let _ = read(response, 64 * 1024, |piece| bytes.extend_from_slice(piece)).await;
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let text = |value: &Value| message(value.as_str().unwrap_or_default(), secret);
    let (title, detail) = match value.get("error").filter(|error| error.is_object()) {
        Some(error) => (text(&error["code"]), text(&error["message"])),
        None => (text(&value["title"]), text(&value["detail"])),
    };
    Failure::Refused {
        status,
        title,
        detail,
        retry_after,
    }
}

/// Without the token and control characters, and of a bounded length: services echo requests in errors.
pub(crate) fn message(text: &str, secret: &str) -> String {
    let text = match secret {
        "" => text.to_owned(),
        secret => text.replace(secret, "[removed]"),
    };
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(LONGEST_MESSAGE).collect()
}

pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match error.is_timeout() {
        true => "it took too long".into(),
        false => message(&cause.to_string(), ""),
    }
}
