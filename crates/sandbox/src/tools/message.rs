//! What a failed tool says to the code that called it. A tool runs on the host, and its errors name files there.

use std::path::Path;

/// In place of a path.
const HIDDEN: &str = "[path]";

/// The text without paths of the host. What the code has sent itself stays: it is how it knows which of its
/// arguments is wrong.
pub(super) fn without_paths(text: &str, arguments: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let path = &from[..end(from)];
        let hidden = begins(&out) && is_of_host(path) && !arguments.contains(path);
        match hidden {
            true => out.push_str(HIDDEN),
            false => out.push_str(path),
        }
        rest = &from[path.len()..];
    }
    out + rest
}

/// Whether a path can begin after this text: not within a word, a URL or another path.
fn begins(before: &str) -> bool {
    let within = |c: char| c.is_alphanumeric() || "_-./~%+*@#?&".contains(c);
    !before.ends_with(within)
}

/// Where a path ends that the text begins with. Parts of a URL go together.
fn end(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || c.is_control() || "'\"`()[]{}<>,;:|=".contains(c);
    let path = text.split(ends).next().unwrap_or_default();
    path.trim_end_matches(['.', '!', '?']).len().max(1)
}

/// Whether the first directory of it is there. `/repos/x` in an answer of a web service is not one of the host.
fn is_of_host(path: &str) -> bool {
    let path = path.trim_start_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    !first.is_empty() && Path::new("/").join(first).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_hidden_and_nothing_else() {
        for (text, expected) in [
            (
                "ENOENT: no such file, open '/etc/app/token.json'",
                "ENOENT: no such file, open '[path]'",
            ),
            (
                "File \"/usr/lib/x.py\", line 3: /etc/a:/etc/b, (/usr/x).",
                "File \"[path]\", line 3: [path]:[path], ([path]).",
            ),
            ("path=/etc/x. End", "path=[path]. End"),
            (
                "file:///etc/passwd is not there",
                "file:[path] is not there",
            ),
            ("/etc", "[path]"),
            ("é/etc, ok", "é/etc, ok"),
            ("either/or, 1 / 2, //", "either/or, 1 / 2, //"),
            (
                "GET https://example.com/etc/x: 404",
                "GET https://example.com/etc/x: 404",
            ),
            ("GET /no-such-place/etc: 404", "GET /no-such-place/etc: 404"),
            ("no such paper", "no such paper"),
        ] {
            assert_eq!(without_paths(text, "{}"), expected, "{text}");
        }
    }

    #[test]
    fn what_the_code_has_sent_stays() {
        let sent = r#"{"file":"/etc/hosts"}"#;
        let text = "cannot read /etc/hosts: see /etc/hosts.allow";
        assert_eq!(
            without_paths(text, sent),
            "cannot read /etc/hosts: see [path]"
        );
    }
}
