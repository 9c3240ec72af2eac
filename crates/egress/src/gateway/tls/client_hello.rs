//! The server name in a ClientHello.

/// The extension `server_name`.
pub(super) const SERVER_NAME: u16 = 0;
/// Encrypted ClientHello (RFC 9849), and the encrypted names of earlier drafts.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// What a ClientHello says about its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The server name (SNI). `None` if the client sent none.
    pub name: Option<String>,
    /// Whether it has an encrypted part that may contain another name.
    pub encrypted: bool,
}

/// Parses the body of a ClientHello. `None` unless there is exactly one way to read it.
pub(super) fn client_hello(body: &[u8]) -> Option<ClientHello> {
    let mut reader = Reader(body);
    reader.take(2)?;
    reader.take(32)?;
    let session = reader.vector(1)?;
    let suites = reader.vector(2)?;
    let compression = reader.vector(1)?;
    let valid = session.len() <= 32
        && !suites.is_empty()
        && suites.len().is_multiple_of(2)
        && !compression.is_empty();
    if !valid {
        return None;
    }
    let mut hello = ClientHello {
        name: None,
        encrypted: false,
    };
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(reader.vector(2)?);
    if !reader.0.is_empty() {
        return None;
    }
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = u16::from_be_bytes(*extensions.take(2)?.first_chunk()?);
        let body = extensions.vector(2)?;
        // Of two equal extensions, some servers use the first and some the last.
        if seen.contains(&kind) {
            return None;
        }
        seen.push(kind);
        if kind == SERVER_NAME {
            hello.name = Some(server_name(body)?);
        }
        hello.encrypted |= ENCRYPTED.contains(&kind);
    }
    Some(hello)
}

/// The only name of the list, of the only type that exists.
fn server_name(body: &[u8]) -> Option<String> {
    let mut outer = Reader(body);
    let mut list = Reader(outer.vector(2)?);
    let kind = *list.take(1)?.first()?;
    let name = list.vector(2)?;
    let alone = kind == 0 && list.0.is_empty() && outer.0.is_empty();
    let valid = alone && !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    valid.then(|| String::from_utf8_lossy(name).into_owned())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes that are preceded by their length, which has `bytes` bytes.
    fn vector(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.take(bytes)?;
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length)
    }
}
