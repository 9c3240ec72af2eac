//! Recognises the protocol of a client by its first bytes.

use super::tls::HANDSHAKE;

/// The protocol of the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// A TLS handshake record.
    Tls,
    /// The first line of an HTTP/1 request.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Too few to decide.
    More,
    /// Neither TLS nor HTTP.
    Other,
}

/// The longest line that may still become a request.
const LINE: usize = 16 * 1024;

/// Distinguishes TLS and HTTP from everything else. Bytes that may still become either need more.
pub fn first_bytes(bytes: &[u8]) -> FirstBytes {
    // Servers skip empty lines before a request.
    let blank = bytes
        .iter()
        .take_while(|b| matches!(b, b'\r' | b'\n'))
        .count();
    let line = bytes.get(blank..).unwrap_or_default();
    match line.first() {
        None => return FirstBytes::More,
        Some(&HANDSHAKE) if blank == 0 => return FirstBytes::Tls,
        _ => {}
    }
    let end = line.iter().position(|b| *b == b'\n');
    let line = &line[..end.unwrap_or(line.len())];
    if line
        .iter()
        .any(|b| b.is_ascii_control() && *b != b'\r' && *b != b'\t')
    {
        return FirstBytes::Other;
    }
    if line.starts_with(b"PRI * HTTP/2") {
        return FirstBytes::Http2;
    }
    match end {
        Some(_) => match line
            .windows(5)
            .any(|part| part.eq_ignore_ascii_case(b"HTTP/"))
        {
            true => FirstBytes::Http,
            false => FirstBytes::Other,
        },
        // Too long for most servers, but not for all. The HTTP parser decides.
        None if line.len() > LINE => FirstBytes::Http,
        None => FirstBytes::More,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_apart_and_none_slips_by_in_pieces() {
        for (bytes, kind) in [
            (&b""[..], FirstBytes::More),
            (b"\r\n", FirstBytes::More),
            (b"G", FirstBytes::More),
            (b"GET / HT", FirstBytes::More),
            (b"GET / HTTP/1.1\r\n", FirstBytes::Http),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", FirstBytes::Http),
            (b"FROBNICATE * http/1.0\n", FirstBytes::Http),
            (b"GET\t/\tHTTP/1.1\n", FirstBytes::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM", FirstBytes::Http2),
            (b"\x16\x03\x01", FirstBytes::Tls),
            (b"SSH-2.0-OpenSSH_9\r\n", FirstBytes::Other),
            (b"\x00\x00\x00\x08", FirstBytes::Other),
            (b"*1\r\n$4\r\nPING\r\n", FirstBytes::Other),
        ] {
            assert_eq!(
                first_bytes(bytes),
                kind,
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
        let request = b"\nPOST /a HTTP/1.1\r\n";
        for cut in 0..request.len() - 1 {
            assert_eq!(first_bytes(&request[..cut]), FirstBytes::More);
        }
        assert_eq!(first_bytes(&[b'A'; LINE + 1]), FirstBytes::Http);
    }
}
