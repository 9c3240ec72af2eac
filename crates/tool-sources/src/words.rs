//! A command line in one text, as words. There is no shell.

use crate::SourceError;

/// What a shell would act on. Written without quotes, it is a mistake here.
const SHELL: &str = "|&;<>()$`";

/// Splits at white space. Quotes and backslashes keep it, as in a shell: nothing is special in `'…'`, and in `"…"`
/// only `\"` and `\\` are. Variables, patterns and `~` are not expanded.
///
/// # Errors
///
/// If there is no word, a quote has no end, or an operator of a shell is not quoted.
pub fn split(text: &str) -> Result<Vec<String>, SourceError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '\0' => return Err(SourceError::Words("it contains a NUL character".into())),
            '\'' | '"' => quoted(next, &mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err(SourceError::Words("it ends with a backslash".into())),
            },
            _ if next.is_whitespace() => words.extend(word.take()),
            _ if SHELL.contains(next) => {
                return Err(SourceError::Words(format!(
                    "`{next}` needs a shell, and there is none: quote it, put it into a script, or write \
                     `sh -c '…'`"
                )));
            }
            _ => word.get_or_insert_default().push(next),
        }
    }
    words.extend(word);
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err(SourceError::Words("it names no program".into())),
    }
}

fn quoted(
    end: char,
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), SourceError> {
    while let Some(next) = chars.next() {
        match next {
            _ if next == end => return Ok(()),
            '\\' if end == '"' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => word.push(escaped),
                Some(other) => word.extend(['\\', other]),
                None => break,
            },
            _ => word.push(next),
        }
    }
    Err(SourceError::Words(format!("a {end} has no end")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would() {
        let cases: [(&str, &[&str]); 7] = [
            ("a", &["a"]),
            ("  a  b\tc ", &["a", "b", "c"]),
            ("a 'b c' \"d  e\"", &["a", "b c", "d  e"]),
            ("a '' x''y", &["a", "", "xy"]),
            (r#"a "\"\\\n$HOME" b\ c"#, &["a", r#""\\n$HOME"#, "b c"]),
            ("sh -c 'a | b > c'", &["sh", "-c", "a | b > c"]),
            ("~/x *.y", &["~/x", "*.y"]),
        ];
        for (text, expected) in cases {
            assert_eq!(split(text).expect(text), expected, "{text}");
        }
        for bad in [
            "", "  ", "''", "a 'b", "a \"b", "a\\", "a | b", "a; b", "a $(b)", "a `b`", "a\0",
        ] {
            assert!(split(bad).is_err(), "{bad:?}");
        }
    }
}
