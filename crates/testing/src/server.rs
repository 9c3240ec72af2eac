//! A web server on loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers every request with its first line and as much text as it was told to, and counts them.
#[derive(Debug)]
pub struct Server {
    pub port: u16,
    asked: Arc<AtomicUsize>,
}

impl Server {
    pub fn start() -> Self {
        Self::with_text(0)
    }

    /// With so many bytes after the first line.
    pub fn with_text(length: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let text = "x".repeat(length);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
                let first = lines.next().and_then(Result::ok).unwrap_or_default();
                let mut rest = lines.map_while(Result::ok);
                while rest.next().is_some_and(|line| !line.is_empty()) {}
                count.fetch_add(1, Ordering::SeqCst);
                let body = format!("served {first}\n{text}");
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        });
        Self { port, asked }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}
