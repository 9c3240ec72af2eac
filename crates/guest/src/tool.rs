//! `brig-tool NAME [ARGUMENTS]`: calls a tool from any language. It decides nothing; the gate outside does.

use std::io::{Read, Write};
use std::net::TcpStream;

const USAGE: &str = "usage: brig-tool NAME [ARGUMENTS AS A JSON OBJECT], or brig-tool --list\n";

/// Exit codes: of a call that failed, of wrong usage, and that of shells for what may not be executed.
const FAILED: i32 = 1;
const MISUSED: i32 = 2;
const DENIED: i32 = 126;

/// The status of a call that is not allowed.
const FORBIDDEN: u16 = 403;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let request = match *words {
        ["--list"] => Request {
            method: "GET",
            path: "tools",
            body: String::new(),
        },
        [name] if is_name(name) => Request::call(name, "{}"),
        [name, arguments] if is_name(name) => Request::call(name, arguments),
        _ => end(MISUSED, USAGE),
    };
    let Some((host, token)) = address() else {
        end(
            FAILED,
            "brig-tool: TOOL_PROXY_URL is not set, so no tool can be called [tool.unavailable]\n",
        )
    };
    match request.send(&host, &token) {
        Ok((200, body)) => {
            let mut stdout = std::io::stdout();
            let written = stdout
                .write_all(&body)
                .and_then(|()| stdout.write_all(b"\n"));
            end(if written.is_ok() { 0 } else { FAILED }, "")
        }
        Ok((status, body)) => {
            let code = if status == FORBIDDEN { DENIED } else { FAILED };
            end(
                code,
                &format!("brig-tool: {}\n", String::from_utf8_lossy(&body)),
            )
        }
        Err(error) => end(
            FAILED,
            &format!("brig-tool: the tools can't be reached: {error} [tool.unavailable]\n"),
        ),
    }
}

struct Request {
    method: &'static str,
    path: &'static str,
    body: String,
}

impl Request {
    fn call(name: &str, arguments: &str) -> Self {
        Self {
            method: "POST",
            path: "call_tool",
            body: format!(r#"{{"tool":"{name}","args":{arguments}}}"#),
        }
    }

    /// Sends it, and returns the status and the body of the answer.
    fn send(&self, host: &str, token: &str) -> std::io::Result<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(host)?;
        let head = format!(
            "{} /{token}/{} HTTP/1.1\r\nHost: {host}\r\nAccept: text/plain\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.method,
            self.path,
            self.body.len()
        );
        // A server that refuses early closes the connection, and its answer tells why.
        let sent = stream.write_all(&[head.as_bytes(), self.body.as_bytes()].concat());
        let mut answer = Vec::new();
        let received = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let status = answer
            .get(9..12)
            .and_then(|text| std::str::from_utf8(text).ok());
        match (end, status.and_then(|status| status.parse().ok())) {
            (Some(end), Some(status)) => Ok((status, answer.split_off(end + 4))),
            _ => {
                sent?;
                received?;
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}

/// The host with its port, and the token of the execution.
fn address() -> Option<(String, String)> {
    let url = std::env::var("TOOL_PROXY_URL").ok()?;
    let (host, token) = url.strip_prefix("http://")?.split_once('/')?;
    Some((host.to_owned(), token.to_owned()))
}

/// What a tool can be named. Anything else would have to be escaped.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(allowed)
}

fn end(code: i32, message: &str) -> ! {
    let _ = std::io::stderr().write_all(message.as_bytes());
    brig_linux::process::exit_now(code)
}
