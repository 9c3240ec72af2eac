//! A party between client and engine that fails on purpose.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The engine answers that it failed, without having done anything.
    Error,
    /// Nothing is ever answered, and nothing done.
    Stall,
    /// It is done, but the answer never comes.
    Lost,
    /// The connection ends.
    Cut,
    /// It takes a while.
    Slow,
    /// The container is created with the network of the engine's machine.
    Networked,
}

type Rule = Arc<Mutex<Option<(String, Fault)>>>;

pub(crate) struct Proxy {
    pub socket: PathBuf,
    rule: Rule,
    serving: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(engine: &Path, socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("a socket");
        let rule = Rule::default();
        let (engine, rules) = (engine.to_owned(), Arc::clone(&rule));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(serve(client, engine.clone(), Arc::clone(&rules)));
            }
        });
        Self {
            socket: socket.to_owned(),
            rule,
            serving,
        }
    }

    /// From now on requests whose first line contains this go wrong.
    pub(crate) fn fail(&self, request: &str, fault: Fault) {
        *self.rule.lock().expect("lock") = Some((request.into(), fault));
    }

    pub(crate) fn repair(&self) {
        *self.rule.lock().expect("lock") = None;
    }
}

/// As if the engine had stopped: every connection ends, and no new one begins.
impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn serve(mut client: UnixStream, engine: PathBuf, rule: Rule) {
    let mut head = Vec::new();
    while !head.contains(&b'\n') {
        match client.read_buf(&mut head).await {
            Ok(1..) => {}
            _ => return,
        }
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default().to_owned();
    let fault = match &*rule.lock().expect("lock") {
        Some((request, fault)) if line.contains(request) => Some(*fault),
        _ => None,
    };
    match fault {
        Some(Fault::Error) => {
            let body = r#"{"message":"broken on purpose"}"#;
            let answer = format!(
                "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = client.write_all(answer.as_bytes()).await;
            let _ = client.shutdown().await;
            // Until the client has read it.
            let _ = client.read_to_end(&mut Vec::new()).await;
            return;
        }
        Some(Fault::Stall) => return std::future::pending().await,
        Some(Fault::Cut) => return,
        Some(Fault::Slow) => tokio::time::sleep(Duration::from_millis(300)).await,
        Some(Fault::Networked) => head = networked(&mut client, head).await,
        Some(Fault::Lost) | None => {}
    }
    let Ok(mut engine) = UnixStream::connect(&engine).await else {
        return;
    };
    if engine.write_all(&head).await.is_err() {
        return;
    }
    if fault == Some(Fault::Lost) {
        let (mut from_client, _to_client) = client.split();
        let (mut from_engine, mut to_engine) = engine.split();
        let mut nowhere = tokio::io::sink();
        let _ = tokio::join!(
            tokio::io::copy(&mut from_client, &mut to_engine),
            tokio::io::copy(&mut from_engine, &mut nowhere),
        );
        return;
    }
    let _ = copy_bidirectional(&mut client, &mut engine).await;
}

/// The whole request, changed.
async fn networked(client: &mut UnixStream, mut request: Vec<u8>) -> Vec<u8> {
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
            let length = head.lines().find(is_length).expect("a length");
            let (_, bytes) = length.split_once(':').expect("a number");
            if body.len() >= bytes.trim().parse().expect("a number") {
                let mut body: serde_json::Value = serde_json::from_str(body).expect("JSON");
                body["NetworkDisabled"] = false.into();
                body["HostConfig"]["NetworkMode"] = "host".into();
                body["HostConfig"]["Sysctls"] = serde_json::json!({});
                let body = body.to_string();
                let head = head.replace(length, &format!("Content-Length: {}", body.len()));
                return format!("{head}\r\n\r\n{body}").into_bytes();
            }
        }
        let more = client.read_buf(&mut request).await;
        assert!(more.is_ok_and(|count| count > 0), "half a request");
    }
}
