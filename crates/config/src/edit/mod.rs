//! Changes to a YAML text that leave everything else as it is: comments, order, unknown keys, style.
//!
//! The result is only a proposal: the caller parses it again and compares.
//!
//! Crates that load and write YAML lose comments and style, so the text is edited at the positions that
//! `saphyr_parser` reports.

mod shape;

use shape::{Kind, Spot, shape};

/// A new entry of a list or a map, as it is written in a block and on one line.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub block: Vec<String>,
    pub flow: String,
}

impl NewEntry {
    /// An item of a list.
    pub(crate) fn item(value: &str) -> Self {
        let flow = quote(value);
        let block = vec![format!("- {flow}")];
        Self { block, flow }
    }

    /// A pair whose value is a map of these.
    pub(crate) fn map(name: &str, pairs: &[(&str, String)]) -> Self {
        let name = quote(name);
        let mut block = vec![format!("{name}:")];
        block.extend(pairs.iter().map(|(key, value)| format!("  {key}: {value}")));
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        let flow = format!("{name}: {{{}}}", pairs.join(", "));
        Self { block, flow }
    }
}

/// Text as a YAML scalar. In quotes, unless it can't be taken for anything else.
pub(crate) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic());
    // `yes`, `null` and the like have no dot.
    if word && text.contains('.') && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Adds entries to the list or map of a key. Nothing if the text is written in an unusual way.
pub(crate) fn add(text: &str, key: &str, entries: &[NewEntry]) -> Option<String> {
    let Some(root) = shape(text) else {
        // Nothing but comments.
        return is_blank(text).then(|| append(text, key, entries));
    };
    let Some((name, value)) = root.pair(key) else {
        return match &root.kind {
            Kind::Map { flow: false, .. } => Some(append(text, key, entries)),
            Kind::Map { items, .. } if items.is_empty() => {
                let empty = splice(text, root.at, "");
                Some(append(&empty, key, entries))
            }
            Kind::Scalar(null) if is_null(null) => {
                Some(append(&splice(text, root.at, ""), key, entries))
            }
            _ => None,
        };
    };
    match &value.kind {
        Kind::Scalar(null) if is_null(null) => {
            let colon = colon_after(text, name)?;
            let text = match null.is_empty() {
                true => text.to_owned(),
                false => splice(text, value.at.clone(), ""),
            };
            Some(insert_after_line(&text, colon, &lines(entries, 2)))
        }
        Kind::List { flow: true, items } | Kind::Map { flow: true, items } => match items.last() {
            None => {
                let start = value.at.start;
                let text = splice(text, value.at.clone(), "");
                Some(insert_after_line(&text, start, &lines(entries, 2)))
            }
            Some(last) => {
                let more: String = entries
                    .iter()
                    .map(|entry| format!(", {}", entry.flow))
                    .collect();
                Some(splice(text, last.end()..last.end(), &more))
            }
        },
        Kind::List { items, .. } | Kind::Map { items, .. } => {
            let first = entry_start(text, &value.kind, items.first()?)?;
            let indent = first - line_start(text, first);
            let end = items.last()?.end();
            Some(insert_after_line(text, end, &lines(entries, indent)))
        }
        Kind::Scalar(_) => None,
    }
}

/// Removes entries of a list or map by their numbers, which are in order.
pub(crate) fn remove(text: &str, key: &str, numbers: &[usize]) -> Option<String> {
    let root = shape(text)?;
    let (name, value) = root.pair(key)?;
    let (flow, entries, empty) = match &value.kind {
        Kind::List { flow, items } => {
            let items: Vec<(&Spot, &Spot)> = items.iter().map(|item| (item, item)).collect();
            (*flow, items, "[]")
        }
        Kind::Map { flow, items } => {
            let pairs = items.chunks_exact(2).map(|pair| (&pair[0], &pair[1]));
            (*flow, pairs.collect(), "{}")
        }
        Kind::Scalar(_) => return None,
    };
    if flow && numbers.len() == entries.len() {
        return Some(splice(text, value.at.clone(), empty));
    }
    let mut out = text.to_owned();
    for number in numbers.iter().rev() {
        let (first, last) = entries.get(*number)?;
        out = match flow {
            true => remove_flow(&out, first.at.start, last.end()),
            false => {
                let start = line_start(&out, entry_start(&out, &value.kind, first)?);
                let end = line_end(&out, last.end());
                splice(&out, start..end, "")
            }
        };
    }
    if !flow && numbers.len() == entries.len() {
        let colon = colon_after(text, name)?;
        out = splice(&out, colon..colon, &format!(" {empty}"));
    }
    Some(out)
}

/// Removes an entry with one comma. Comments next to it stay.
fn remove_flow(text: &str, start: usize, end: usize) -> String {
    let after = text[end..].trim_start_matches([' ', '\t']);
    if let Some(rest) = after.strip_prefix(',') {
        let rest = rest.trim_start_matches([' ', '\t']);
        return splice(text, start..text.len() - rest.len(), "");
    }
    let before = text[..start].trim_end();
    let start = before.strip_suffix(',').map_or(start, str::len);
    splice(text, start..end, "")
}

fn append(text: &str, key: &str, entries: &[NewEntry]) -> String {
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(&format!("{key}:\n{}", lines(entries, 2)));
    out
}

fn lines(entries: &[NewEntry], indent: usize) -> String {
    let lines = entries.iter().flat_map(|entry| &entry.block);
    lines
        .map(|line| format!("{:indent$}{line}\n", ""))
        .collect()
}

/// Where the entry of a block begins: at its dash, or at its key. It has to be the first on its line.
fn entry_start(text: &str, kind: &Kind, entry: &Spot) -> Option<usize> {
    let line = line_start(text, entry.at.start);
    let before = &text[line..entry.at.start];
    let blank = before.trim_end_matches(' ');
    match kind {
        Kind::List { .. } => {
            let indent = blank.strip_suffix('-')?;
            is_indent(indent).then_some(line + indent.len())
        }
        _ => is_indent(before).then_some(entry.at.start),
    }
}

fn is_indent(text: &str) -> bool {
    text.bytes().all(|b| b == b' ')
}

/// Just behind the colon of a key.
fn colon_after(text: &str, key: &Spot) -> Option<usize> {
    let rest = &text[key.at.end..];
    let colon = rest.find(':')?;
    rest[..colon]
        .trim()
        .is_empty()
        .then_some(key.at.end + colon + 1)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |line| line + 1)
}

/// Behind the line break of the line.
fn line_end(text: &str, at: usize) -> usize {
    text[at..]
        .find('\n')
        .map_or(text.len(), |line| at + line + 1)
}

fn insert_after_line(text: &str, at: usize, lines: &str) -> String {
    let end = line_end(text, at);
    match text[..end].ends_with('\n') {
        true => splice(text, end..end, lines),
        false => splice(text, end..end, &format!("\n{lines}")),
    }
}

fn splice(text: &str, at: std::ops::Range<usize>, with: &str) -> String {
    [&text[..at.start], with, &text[at.end..]].concat()
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn is_blank(text: &str) -> bool {
    (text.lines()).all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str, hosts: &[&str]) -> Option<String> {
        let entries: Vec<NewEntry> = hosts.iter().map(|host| NewEntry::item(host)).collect();
        add(text, "list", &entries)
    }

    #[test]
    fn entries_are_added_in_the_style_of_the_file() {
        let table = [
            ("", "list:\n  - a.org\n  - \"*.b.org\"\n"),
            ("# mine\n", "# mine\nlist:\n  - a.org\n  - \"*.b.org\"\n"),
            (
                "x: 1 # one",
                "x: 1 # one\nlist:\n  - a.org\n  - \"*.b.org\"\n",
            ),
            ("{}\n", "\nlist:\n  - a.org\n  - \"*.b.org\"\n"),
            (
                "list: # why\nx: 1\n",
                "list: # why\n  - a.org\n  - \"*.b.org\"\nx: 1\n",
            ),
            (
                "list: []  # none\nx: 1\n",
                "list:   # none\n  - a.org\n  - \"*.b.org\"\nx: 1\n",
            ),
            (
                "list: [z.org] # few\n",
                "list: [z.org, a.org, \"*.b.org\"] # few\n",
            ),
            (
                "list:\n- z.org # last\n# about x\nx: ż\n",
                "list:\n- z.org # last\n- a.org\n- \"*.b.org\"\n# about x\nx: ż\n",
            ),
            (
                "ż: ó\nlist:\n    - \"z.org\"",
                "ż: ó\nlist:\n    - \"z.org\"\n    - a.org\n    - \"*.b.org\"\n",
            ),
        ];
        for (before, after) in table {
            assert_eq!(
                added(before, &["a.org", "*.b.org"]).as_deref(),
                Some(after),
                "{before:?}"
            );
        }
    }

    #[test]
    fn entries_are_removed_with_their_comments_and_nothing_else() {
        let table: [(&str, &[usize], &str); 8] = [
            (
                "list:\n  - a\n  - b # b\n  - c\n",
                &[1],
                "list:\n  - a\n  - c\n",
            ),
            (
                "# l\nlist: # x\n  # first\n  - a\ny: 1\n",
                &[0],
                "# l\nlist: [] # x\n  # first\ny: 1\n",
            ),
            ("list: [a, b, c]\n", &[1], "list: [a, c]\n"),
            ("list: [a, b, c]\n", &[2], "list: [a, b]\n"),
            ("list: [a, b, c]\n", &[0, 2], "list: [b]\n"),
            ("list: [a] # x\n", &[0], "list: [] # x\n"),
            (
                "list: [\n  a, # why a\n  b # why b\n]\n",
                &[1],
                "list: [\n  a, # why a\n   # why b\n]\n",
            ),
            ("list:\n- a\n- b\n", &[0, 1], "list: []\n"),
        ];
        for (before, numbers, after) in table {
            let found = remove(before, "list", numbers);
            assert_eq!(found.as_deref(), Some(after), "{before:?}");
        }
    }

    #[test]
    fn what_refers_elsewhere_is_left_alone() {
        for text in [
            "x: &x [a.org]\nlist: *x\n",
            "list: !!seq [a.org]\n",
            "{list: [a.org",
        ] {
            assert_eq!(added(text, &["b.org"]), None, "{text}");
        }
        assert_eq!(added("list: text\n", &["b.org"]), None);
        assert_eq!(added("- list\n", &["b.org"]), None);
        assert_eq!(remove("list: [a]\n", "other", &[0]), None);
    }

    #[test]
    fn only_what_can_be_nothing_else_stands_without_quotes() {
        for plain in ["a.org", "x-1.example.com"] {
            assert_eq!(quote(plain), plain);
        }
        for text in [
            "yes",
            "null",
            "1.5",
            "*.a.org",
            "a.org:443",
            "[::1]:80",
            "10.0.0.0/8",
            "",
        ] {
            assert_eq!(quote(text), format!("\"{text}\""));
        }
        assert_eq!(quote("/a \"b\\\n"), "\"/a \\\"b\\\\\\u000a\"");
    }
}
