//! A small web server that remembers what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(crate) struct Server {
    pub address: SocketAddr,
    /// The heads of all requests.
    pub requests: Arc<Mutex<Vec<String>>>,
    /// How many connections were accepted.
    pub accepted: Arc<Mutex<usize>>,
    /// How many have ended.
    pub ended: Arc<Mutex<usize>>,
}

/// A certificate for all names that tests use.
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    /// Of the authority.
    pub pem: String,
}

impl Identity {
    pub(crate) fn new(names: &[&str]) -> Self {
        Self::with_group(names, None)
    }

    /// One that asks for another hello, from clients that begin with another group.
    pub(crate) fn that_retries(names: &[&str]) -> Self {
        Self::with_group(names, Some(rustls::crypto::ring::kx_group::SECP384R1))
    }

    fn with_group(
        names: &[&str],
        group: Option<&'static dyn rustls::crypto::SupportedKxGroup>,
    ) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority of the tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, "a server of the tests");
        params.use_authority_key_identifier_extension = true;
        let own = key();
        let leaf = params.signed_by(&own, &authority).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(own.serialize_der().into());
        let chain = vec![CertificateDer::from(leaf.der().to_vec())];
        let mut provider = rustls::crypto::ring::default_provider();
        if let Some(group) = group {
            provider.kx_groups = vec![group];
        }
        let provider = Arc::new(provider);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("the key fits");
        Self {
            config: Arc::new(config),
            pem: authority.pem(),
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

impl Server {
    pub(crate) fn plain() -> Self {
        Self::start("127.0.0.1:0", None, None)
    }

    pub(crate) fn tls(identity: &Identity) -> Self {
        Self::start("127.0.0.1:0", Some(identity), None)
    }

    /// Serves the files of a folder.
    pub(crate) fn files(folder: PathBuf) -> Self {
        Self::start("127.0.0.1:0", None, Some(folder))
    }

    pub(crate) fn start(
        address: &str,
        identity: Option<&Identity>,
        folder: Option<PathBuf>,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let server = Self {
            address: listener.local_addr().expect("an address"),
            requests: Arc::default(),
            accepted: Arc::default(),
            ended: Arc::default(),
        };
        let (requests, accepted) = (server.requests.clone(), server.accepted.clone());
        let ended = server.ended.clone();
        let tls = identity.map(|identity| identity.config.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *accepted.lock().expect("not poisoned") += 1;
                let (requests, tls, folder) = (requests.clone(), tls.clone(), folder.clone());
                let ended = ended.clone();
                std::thread::spawn(move || {
                    match tls {
                        Some(tls) => {
                            let session = ServerConnection::new(tls).expect("a session");
                            serve(StreamOwned::new(session, stream), &requests, folder);
                        }
                        None => serve(stream, &requests, folder),
                    }
                    *ended.lock().expect("not poisoned") += 1;
                });
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        let ended = *self.ended.lock().expect("not poisoned");
        self.accepted() - ended
    }

    pub(crate) fn accepted(&self) -> usize {
        *self.accepted.lock().expect("not poisoned")
    }
}

fn serve(mut stream: impl Read + Write, requests: &Mutex<Vec<String>>, folder: Option<PathBuf>) {
    let mut pending = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut pending) {
        requests.lock().expect("not poisoned").push(head.clone());
        if !read_body(&mut stream, &mut pending, &head) {
            return;
        }
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            let _ = stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            );
            return echo(stream);
        }
        if stream.write_all(&answer(&path, folder.as_ref())).is_err() || stream.flush().is_err() {
            return;
        }
    }
}

fn answer(path: &str, folder: Option<&PathBuf>) -> Vec<u8> {
    let (status, extra, body) = match (path.strip_prefix("/redirect/"), folder) {
        (Some(to), _) => (
            "302 Found",
            format!("Location: http://{to}\r\n"),
            Vec::new(),
        ),
        (None, Some(folder)) => {
            let path = path.split('?').next().unwrap_or_default();
            let file = folder.join(path.trim_matches('/'));
            let file = if file.is_dir() {
                file.join("index.html")
            } else {
                file
            };
            let kind = match file.extension().and_then(|kind| kind.to_str()) {
                Some("html") => "Content-Type: text/html\r\n",
                Some("json") => "Content-Type: application/json\r\n",
                _ => "",
            };
            match std::fs::read(&file) {
                Ok(bytes) => ("200 OK", kind.to_owned(), bytes),
                Err(_) => ("404 Not Found", String::new(), Vec::new()),
            }
        }
        (None, None) => {
            let size = path
                .strip_prefix("/bytes/")
                .and_then(|size| size.parse().ok());
            let body = match size {
                Some(size) => vec![b'x'; size],
                None => format!("hello {path}\n").into_bytes(),
            };
            ("200 OK", "X-Brig-Reason: forged\r\n".to_owned(), body)
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = head.into_bytes();
    answer.extend_from_slice(&body);
    answer
}

fn read_head(stream: &mut impl Read, pending: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = pending.windows(4).position(|part| part == b"\r\n\r\n") {
            let rest = pending.split_off(end + 4);
            let head = std::mem::replace(pending, rest);
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        fill(stream, pending)?;
    }
}

fn read_body(stream: &mut impl Read, pending: &mut Vec<u8>, head: &str) -> bool {
    let lower = head.to_ascii_lowercase();
    let header = |name: &str| {
        let line = lower.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    if header("transfer-encoding:").is_some() {
        while !pending.windows(5).any(|part| part == b"0\r\n\r\n") {
            if fill(stream, pending).is_none() {
                return false;
            }
        }
        pending.clear();
        return true;
    }
    let length = header("content-length:")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    while pending.len() < length {
        if fill(stream, pending).is_none() {
            return false;
        }
    }
    pending.drain(..length);
    true
}

fn fill(stream: &mut impl Read, pending: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 8192];
    let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
    pending.extend_from_slice(&buffer[..length]);
    Some(())
}

fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() || stream.flush().is_err() {
            return;
        }
    }
}

/// A server that says something first, then echoes.
pub(crate) fn speaks_first() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(b"220 ready\r\n");
                echo(stream);
            });
        }
    });
    address
}

/// A server that keeps all it hears, and begins with a banner.
pub(crate) fn hears(banner: &'static [u8]) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = heard.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let all = all.clone();
            std::thread::spawn(move || {
                let _ = stream.write_all(banner);
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let mut all = all.lock().expect("not poisoned");
                    all.extend_from_slice(&buffer[..length]);
                }
            });
        }
    });
    (address, heard)
}

/// A server that only echoes.
pub(crate) fn echoes() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
    address
}
