//! A record always fits into a line. What a program can put into one is bounded where it is made, so
//! this is for the rest: it is better to shorten a record than to have none.

use serde_json::Value;

use crate::canonical::{NotCanonical, to_canonical};
use crate::log::LONGEST;
use crate::{Event, Record, receipt};

/// How long a text is when it is written, without its quotes.
pub fn written(text: &str) -> usize {
    text.chars().map(written_char).sum()
}

fn written_char(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\u{0}'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

/// The beginning of a text that takes at most so many bytes when it is written, with an ellipsis in
/// place of the rest.
pub fn shorten(text: &str, most: usize) -> String {
    let mut used = 0;
    let mut end = None;
    for (at, c) in text.char_indices() {
        if used + '…'.len_utf8() <= most {
            end = Some(at);
        }
        used += written_char(c);
        if used > most {
            let end = end.unwrap_or(0);
            return format!("{}…", &text[..end]);
        }
    }
    text.to_owned()
}

/// The longest text of a record. The rest of a line takes some hundred bytes.
pub(crate) const MOST: usize = LONGEST - 1024;

/// The digest of a record as the log keeps it: SHA-256 of its canonical text. None for a record that the log
/// refuses.
pub fn digest(record: &Record) -> Option<String> {
    let whole = to_canonical(record).ok()?;
    let kept = match whole.len() > MOST {
        true => fit(record, MOST).ok()??,
        false => whole,
    };
    Some(receipt::digest(kept.as_bytes()))
}

const OWNERS: [&str; 3] = ["agent", "session", "execution"];

/// The text of a record in at most so many bytes. None for what nobody may shorten: what does not
/// belong to an execution can be refused instead.
pub(crate) fn fit(record: &Record, most: usize) -> Result<Option<String>, NotCanonical> {
    if !is_of_execution(&record.event) {
        return Ok(None);
    }
    let json = |error: serde_json::Error| NotCanonical::Json(error.to_string());
    let whole = serde_json::to_value(record).map_err(json)?;
    let (mut text_most, mut list_most) = (4096, 64);
    loop {
        let mut value = whole.clone();
        let fields = value.as_object_mut().into_iter().flatten();
        // Whose it is stays as it is.
        let fields = fields.filter(|(name, _)| !OWNERS.contains(&name.as_str()));
        fields.for_each(|(_, value)| cut(value, text_most, list_most));
        let text = to_canonical(&value)?;
        if text.len() <= most {
            return Ok(Some(text));
        }
        if text_most <= 64 && list_most == 0 {
            return Ok(None);
        }
        text_most = (text_most / 2).max(64);
        list_most /= 2;
    }
}

fn is_of_execution(event: &Event) -> bool {
    matches!(
        event,
        Event::Decided { .. }
            | Event::ExecutionStarted { .. }
            | Event::ExecutionFinished { .. }
            | Event::ExecutionFailed { .. }
            | Event::FilesNotSaved { .. }
            | Event::Receipt(_)
            | Event::EgressDecided(_)
            | Event::EgressClosed(_)
            | Event::EgressTotal(_)
            | Event::CommandAttempted(_)
            | Event::CommandTotal(_)
            | Event::ToolCalled(_)
            | Event::ApprovalRequested(_)
            | Event::ApprovalAnswered(_)
            | Event::Suppressed { .. }
    )
}

fn cut(value: &mut Value, text_most: usize, list_most: usize) {
    match value {
        Value::String(text) if written(text) > text_most => *text = shorten(text, text_most),
        Value::Array(list) => {
            list.truncate(list_most);
            list.iter_mut()
                .for_each(|value| cut(value, text_most, list_most));
        }
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|value| cut(value, text_most, list_most)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_as_short_as_it_should_be_when_it_is_written(text in ".*", most in 3_usize..80) {
            let quoted = to_canonical(&text).expect("a text");
            prop_assert_eq!(quoted.len(), written(&text) + 2);
            let short = shorten(&text, most);
            prop_assert!(written(&short) <= most);
            let kept = short.strip_suffix('…').unwrap_or(&short);
            prop_assert!(text.starts_with(kept));
            prop_assert!(written(&text) > most || short == text);
        }
    }
}
