//! Removes secrets from text for records: only scheme, host and port remain, never a user, a password, a
//! path or a query.

use hyper::Uri;

/// Redacts a parsed URI.
pub(super) fn uri(uri: &Uri) -> String {
    let Some(authority) = uri.authority() else {
        return "(no host)".to_owned();
    };
    let host = match (authority.host(), authority.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    match uri.scheme_str() {
        Some(scheme) => format!("{scheme}://{host}"),
        None => host,
    }
}

/// Redacts text that should be a host, but may be anything.
pub(super) fn host(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            (format!("{scheme}://"), rest)
        }
        _ => (String::new(), text),
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let shown = match authority.rsplit_once('@') {
        Some((_, host)) => host,
        // It can't be decided which part is the host, and which a password.
        None if behind.contains('@') => "(unreadable)",
        None => authority,
    };
    let shown: String = shown.escape_debug().take(255).collect();
    format!("{scheme}{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_port_are_shown() {
        for (text, shown) in [
            ("a.example:80", "a.example:80"),
            ("https://u:p@a.example/x?y#z", "https://a.example"),
            ("u:p@a.example", "a.example"),
            ("a.example?token=1", "a.example"),
            ("a.example/path", "a.example"),
            ("u:p/q@a.example", "(unreadable)"),
            ("a@b@c", "c"),
            ("a\r\nb", "a\\r\\nb"),
        ] {
            assert_eq!(host(text), shown, "{text}");
        }
        for (text, shown) in [
            ("http://u:p@a.example:8080/x?y=1", "http://a.example:8080"),
            ("http://a.example?x=1", "http://a.example"),
            ("u:p@a.example:443", "a.example:443"),
            ("/path?query", "(no host)"),
            ("*", "(no host)"),
        ] {
            assert_eq!(uri(&text.parse().expect(text)), shown, "{text}");
        }
    }
}
