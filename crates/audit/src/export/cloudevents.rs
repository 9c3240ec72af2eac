use std::io::{self, Write};

use serde_json::json;

use super::json_line;
use crate::view::View;

pub(super) fn write(view: &View, origin: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut event = json!({
        "specversion": "1.0",
        "id": view.hash,
        "source": origin,
        "type": format!("dev.brig.audit.{}", view.event),
        "time": view.at.to_string(),
        "datacontenttype": "application/json",
        "sequence": format!("{:020}", view.seq),
        "data": view.record,
    });
    let subject = view.execution.as_ref().unwrap_or(&view.session);
    // An empty attribute is not allowed.
    if !subject.is_empty() {
        event["subject"] = subject.as_str().into();
    }
    json_line(&event, out)
}
