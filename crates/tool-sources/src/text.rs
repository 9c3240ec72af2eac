//! Text of tools, for messages.

/// The longest message of a tool that reaches the sandboxed code, in characters.
const LONGEST: usize = 400;

/// The first line that says something, bounded, without control characters.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    clean(line.unwrap_or_default(), LONGEST).trim().to_owned()
}

/// At most so many characters, without control characters.
pub(crate) fn clean(text: &str, longest: usize) -> String {
    let mut chars = text.chars();
    let shown = chars.by_ref().take(longest);
    let mut clean: String = shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if chars.next().is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_harmless() {
        assert_eq!(
            first_line("\n  \n\x1b[31mbad\x07 thing\nmore"),
            "[31mbad  thing"
        );
        assert_eq!(first_line(""), "");
        assert_eq!(first_line(&"x".repeat(1000)).chars().count(), LONGEST + 1);
        assert_eq!(clean("äöü", 2), "äö…");
    }
}
