use std::io::{self, Write};

use serde_json::{Value, json};

use super::json_line;
use crate::Verdict;
use crate::view::View;

const VERSION: &str = "1.6.0";

/// Class and activity: processes for executions, the network for egress, an API for the rest.
fn class(view: &View) -> (u32, u32) {
    let denied = view
        .decision
        .is_some_and(|verdict| verdict != Verdict::Allowed);
    match view.event.as_str() {
        "execution_started" | "command_attempted" | "command_total" | "unsandboxed" => (1007, 1),
        "execution_finished" | "execution_failed" | "files_not_saved" | "receipt" => (1007, 2),
        "egress_decided" | "egress_total" if denied => (4001, 5),
        "egress_decided" | "egress_total" => (4001, 1),
        "session_created" | "session_restored" | "session_forked" | "checkpoint_saved" => (6003, 1),
        "allowlist_changed" | "key_rotated" | "log_repaired" => (6003, 3),
        "session_destroyed" | "checkpoint_deleted" => (6003, 4),
        _ => (6003, 99),
    }
}

pub(super) fn write(view: &View, origin: &str, out: &mut dyn Write) -> io::Result<()> {
    let (class, activity) = class(view);
    let allowed = view
        .decision
        .is_none_or(|verdict| verdict == Verdict::Allowed);
    let mut event = json!({
        "class_uid": class,
        "category_uid": class / 1000,
        "activity_id": activity,
        "type_uid": class * 100 + activity,
        "time": view.at.as_millisecond(),
        // Informational, or medium for what was denied or ended.
        "severity_id": if allowed { 1 } else { 3 },
        "status_id": if allowed { 1 } else { 2 },
        "message": view.detail,
        "metadata": {
            "version": VERSION,
            "uid": view.hash,
            "sequence": view.seq,
            "log_name": origin,
            "event_code": view.event,
            "original_time": view.at.to_string(),
            "product": {
                "name": "Brig",
                "vendor_name": "Brig",
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "actor": {
            "user": { "name": view.agent },
            "session": { "uid": view.session },
        },
        "device": { "type_id": 0, "uid": view.session },
        "unmapped": { "record": view.record },
    });
    if let Some(verdict) = view.decision {
        event["status_code"] = view.code.as_deref().map_or(Value::Null, Value::from);
        event["status_detail"] = verdict.name().into();
        // Allowed or blocked.
        event["disposition_id"] = if allowed { 1 } else { 2 }.into();
    }
    match class {
        1007 => event["process"] = process(view),
        4001 => event["dst_endpoint"] = endpoint(&view.record),
        _ => {
            event["api"] = json!({ "operation": view.event });
            event["src_endpoint"] = json!({ "uid": view.session });
        }
    }
    json_line(&event, out)
}

fn process(view: &View) -> Value {
    let mut process = json!({ "uid": view.execution });
    if let Some(program) = view.record.get("program") {
        process["name"] = program.clone();
    }
    process
}

fn endpoint(record: &Value) -> Value {
    json!({ "hostname": record.get("host"), "port": record.get("port") })
}
