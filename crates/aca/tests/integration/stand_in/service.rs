//! What the service does with each request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use serde_json::{Value, json};

use super::machine::Machine;
use super::recorded::{self, Seen};
use super::{Entry, Fault, PlannedFault, StandIn, TOKEN};

type Answer = (u16, Vec<u8>);

fn ok(value: &Value) -> Answer {
    (200, value.to_string().into_bytes())
}

fn problem(status: u16, title: &str) -> Answer {
    let detail = format!("details of {title}");
    let value = json!({"title": title, "status": status, "detail": detail, "errorCode": 1});
    (status, value.to_string().into_bytes())
}

/// A request as it came.
struct Asked {
    kind: &'static str,
    uri: String,
    id: String,
    query: BTreeMap<String, String>,
    json: Value,
    body: Bytes,
}

/// `None` closes the connection.
pub(super) async fn answer(
    stand_in: &StandIn,
    request: Request<hyper::body::Incoming>,
) -> Option<Response<Full<Bytes>>> {
    let asked = match read(stand_in, request).await {
        Ok(asked) => asked,
        Err(violation) => {
            let answer = problem(400, &violation);
            stand_in.state().violations.push(violation);
            return respond(answer);
        }
    };
    let fault = {
        let mut state = stand_in.state();
        state.log.push(asked.kind);
        state.requests.push((Instant::now(), asked.uri.clone()));
        let planned = |planned: &PlannedFault| planned.kind == asked.kind;
        match state.faults.iter().position(planned) {
            None => None,
            Some(at) if state.faults[at].after > 0 => {
                state.faults[at].after -= 1;
                None
            }
            Some(at) => Some(state.faults.remove(at).fault),
        }
    };
    match fault {
        None => respond(act(stand_in, asked).await),
        Some(Fault::Status(status, title)) => respond(problem(status, title)),
        Some(Fault::TooMany(seconds)) => {
            let mut response = respond(problem(429, "TooManyRequests"))?;
            let headers = response.headers_mut();
            headers.insert("retry-after", seconds.into());
            Some(response)
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Answer(value)) => {
            if let Some(link) = value["nextLink"].as_str() {
                stand_in.state().links.insert(below_the_host(link));
            }
            respond(ok(&value))
        }
        Some(Fault::Lost) => {
            act(stand_in, asked).await;
            None
        }
        Some(Fault::DoneBut(status)) => {
            act(stand_in, asked).await;
            respond(problem(status, "ServerError"))
        }
    }
}

fn respond((status, body): Answer) -> Option<Response<Full<Bytes>>> {
    let response = Response::builder()
        .status(status)
        .body(Full::new(body.into()));
    Some(response.unwrap())
}

async fn read(
    stand_in: &StandIn,
    request: Request<hyper::body::Incoming>,
) -> Result<Asked, String> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|error| error.to_string())?
        .to_bytes();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let url = reqwest::Url::parse(&format!("https://localhost{}", head.uri)).unwrap();
    let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    let place = format!("{} {}", head.method, head.uri);
    if header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return Err(format!("{place}: the token is missing"));
    }
    if header("accept") != Some("*/*") {
        return Err(format!("{place}: the accept header is another one"));
    }
    let path = url
        .path()
        .replace("/sub-1/", "/SUB/")
        .replace("/rg-1/", "/RG/");
    let path = path.replace("sandboxGroups/group-1", "sandboxGroups/GRP");
    let (path, id) = without_ids(&path);
    let content_type = header("content-type");
    let json: Value = match content_type {
        Some("application/json") => {
            serde_json::from_slice(&body).map_err(|error| format!("{place}: {error}"))?
        }
        _ => Value::Null,
    };
    let seen = Seen {
        method: head.method.as_str(),
        path: &path,
        query: &query,
        content_type,
        json: Some(&json).filter(|json| !json.is_null()),
    };
    let uri = head.uri.to_string();
    // A client follows links as they are.
    let linked = seen.method == "GET" && stand_in.state().links.contains(&uri);
    if !linked {
        recorded::check(&seen).map_err(|problem| format!("{place}: {problem}"))?;
    }
    Ok(Asked {
        kind: kind(seen.method, &path),
        uri,
        id,
        query,
        json,
        body,
    })
}

/// The path with names as in the recording, and the id in it.
fn without_ids(path: &str) -> (String, String) {
    let mut parts: Vec<&str> = path.split('/').collect();
    for (list, name) in [("sandboxes", "ID"), ("snapshots", "S")] {
        let at = parts.iter().position(|part| *part == list);
        if let Some(at) = at.map(|at| at + 1).filter(|at| *at < parts.len()) {
            let id = parts[at].to_owned();
            parts[at] = name;
            return (parts.join("/"), id);
        }
    }
    (path.to_owned(), String::new())
}

fn kind(method: &str, path: &str) -> &'static str {
    let below = path.rsplit("GRP").next().unwrap_or_default();
    let arm = path.contains("/providers/");
    match (method, below) {
        ("GET", "") if arm => "arm get",
        ("PUT", "") if arm => "arm create",
        ("GET", "/sandboxes") => "list",
        ("PUT", "/sandboxes") => "create",
        ("GET", "/sandboxes/ID") => "get",
        ("DELETE", "/sandboxes/ID") => "delete",
        ("POST", "/sandboxes/ID/executeShellCommand") => "exec",
        ("POST", "/sandboxes/ID/resume") => "resume",
        ("POST", "/sandboxes/ID/egresspolicy") => "egress policy",
        ("POST", "/sandboxes/ID/lifecycle") => "lifecycle",
        ("POST", "/sandboxes/ID/snapshot") => "snapshot",
        ("GET", "/sandboxes/ID/egress-decisions") => "decisions",
        ("PUT", "/sandboxes/ID/files") => "write",
        ("GET", "/sandboxes/ID/files") => "read",
        ("DELETE", "/sandboxes/ID/files") => "remove",
        ("GET", "/snapshots") => "list snapshots",
        ("GET", "/snapshots/S") => "get snapshot",
        ("DELETE", "/snapshots/S") => "delete snapshot",
        _ => "other",
    }
}

async fn act(stand_in: &StandIn, asked: Asked) -> Answer {
    match asked.kind {
        "arm get" => match &stand_in.state().group {
            Some(group) => ok(group),
            None => (
                404,
                br#"{"error":{"code":"ResourceNotFound","message":"none"}}"#.to_vec(),
            ),
        },
        "arm create" => {
            let group = json!({"properties": {"provisioningState": "Succeeded"}});
            stand_in.state().group = Some(group.clone());
            ok(&group)
        }
        "list" => list(stand_in, &asked),
        "create" => create(stand_in, &asked.json).await,
        "list snapshots" => {
            let state = stand_in.state();
            let all: Vec<&Value> = state.snapshots.values().map(|(value, _)| value).collect();
            ok(&json!(all))
        }
        "get snapshot" => match stand_in.state().snapshots.get(&asked.id) {
            Some((value, _)) => ok(value),
            None => problem(404, "SnapshotNotFound"),
        },
        "delete snapshot" => {
            stand_in.state().snapshots.remove(&asked.id);
            (204, Vec::new())
        }
        _ => sandbox(stand_in, asked).await,
    }
}

fn below_the_host(link: &str) -> String {
    let url = reqwest::Url::parse(link).unwrap();
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

fn list(stand_in: &StandIn, asked: &Asked) -> Answer {
    let mut state = stand_in.state();
    if let Some(next) = &state.next_link {
        let link = next.replace("{n}", &state.log.len().to_string());
        state.links.insert(below_the_host(&link));
        return ok(&json!({"value": [], "nextLink": link}));
    }
    let fits = |value: &&Value| match asked.query.get("labels").and_then(|l| l.split_once('=')) {
        Some((name, label)) => value["labels"][name] == *label,
        None => true,
    };
    let all: Vec<&Value> = (state.sandboxes.values())
        .map(|entry| &entry.value)
        .filter(fits)
        .collect();
    ok(&json!(all))
}

async fn create(stand_in: &StandIn, json: &Value) -> Answer {
    let snapshot = json["sourcesRef"]["snapshot"]["id"].as_str();
    let files = match snapshot {
        None => None,
        Some(id) => match stand_in.state().snapshots.get(id) {
            Some(found) => Some(found.clone()),
            None => return problem(404, "SnapshotNotFound"),
        },
    };
    let mut value = match &files {
        Some((found, _)) if json.as_object().unwrap().len() == 1 => found["of"].clone(),
        Some(_) => return problem(400, "InvalidRequest"),
        None => json.clone(),
    };
    let folder = files
        .as_ref()
        .map(|(_, folder)| folder.path().join("files"));
    let machine = Arc::new(Machine::start(folder.as_deref()).await);
    let mut state = stand_in.state();
    state.created += 1;
    let id = format!("00000000-0000-0000-0000-{:012}", state.created);
    value["id"] = json!(id);
    value["state"] = json!("Running");
    value["sourcesRef"] = json["sourcesRef"].clone();
    if snapshot.is_some() {
        let object = value.as_object_mut().unwrap();
        object.remove("labels");
        object.remove("lifecycle");
    }
    if let Some(change) = state.on_create {
        change(&mut value);
    }
    let entry = Entry {
        value: value.clone(),
        machine,
    };
    state.sandboxes.insert(id, entry);
    ok(&value)
}

async fn sandbox(stand_in: &StandIn, asked: Asked) -> Answer {
    let (machine, mut value) = match stand_in.state().sandboxes.get(&asked.id) {
        Some(entry) => (entry.machine.clone(), entry.value.clone()),
        None if asked.kind == "delete" => return (204, Vec::new()),
        None => return problem(404, "SandboxNotFound"),
    };
    let running = value["state"] == "Running";
    let set = |name: &str, to: Value| {
        if let Some(entry) = stand_in.state().sandboxes.get_mut(&asked.id) {
            entry.value[name] = to;
        }
    };
    match asked.kind {
        "get" => {
            if let Some(change) = stand_in.state().on_read {
                change(&mut value);
            }
            ok(&value)
        }
        "delete" => {
            stand_in.state().sandboxes.remove(&asked.id);
            machine.end().await;
            (200, Vec::new())
        }
        "resume" => {
            set("state", json!("Running"));
            ok(&value)
        }
        "lifecycle" => {
            set("lifecycle", asked.json);
            ok(&value)
        }
        "decisions" => {
            let decisions = stand_in.state().decisions.clone();
            ok(&json!({"networkEgress": decisions, "lastUpdated": "2026-01-01T00:00:00Z"}))
        }
        _ if !running => problem(409, "SandboxNotRunning"),
        "egress policy" => {
            set("egressPolicy", asked.json.clone());
            ok(&asked.json)
        }
        "exec" => ok(&machine.run(asked.json["command"].as_str().unwrap()).await),
        "snapshot" => {
            let folder = Arc::new(machine.save());
            let mut state = stand_in.state();
            state.created += 1;
            let id = format!("11111111-0000-0000-0000-{:012}", state.created);
            let found = json!({
                "id": id, "labels": asked.json["labels"], "sandboxId": asked.id,
                "status": "Ready", "createdAtUtc": "2026-01-01T00:00:00Z", "of": value,
            });
            state.snapshots.insert(id, (found.clone(), folder));
            ok(&found)
        }
        "write" | "read" | "remove" => file(&machine, &asked),
        other => problem(500, other),
    }
}

fn file(machine: &Machine, asked: &Asked) -> Answer {
    let Some(place) = machine.place(&asked.query["path"]) else {
        return problem(403, "Forbidden");
    };
    match asked.kind {
        "write" => {
            let mode: u32 = asked.query["mode"].parse().unwrap();
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(&place, &asked.body).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&place, mode).unwrap();
            ok(&json!({"success": true, "bytesWritten": asked.body.len()}))
        }
        "read" => match std::fs::read(&place) {
            Ok(bytes) => (200, bytes),
            Err(_) => problem(404, "FileNotFound"),
        },
        _ => {
            let _ = std::fs::remove_file(&place);
            let _ = std::fs::remove_dir_all(&place);
            ok(&json!({"success": true}))
        }
    }
}
