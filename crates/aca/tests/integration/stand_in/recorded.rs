//! Requests that Microsoft's own client sends, as they were recorded. Every request of ours must be one of
//! these in its method, path, query, type and names of fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

static RECORDED: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/recorded-requests.json")).unwrap()
});

/// What is not in the recording, and why it is sent all the same.
static BEYOND: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let beyond = |method: &str, path: &str, content_type: Value, body: Value| {
        let group = "/subscriptions/SUB/resourceGroups/RG/sandboxGroups/GRP";
        json!({
            "method": method, "path": format!("{group}{path}"), "content_type": content_type, "json": body,
            "query": {"api-version": "2026-02-01-preview"},
        })
    };
    vec![
        // The specification has it; the client only lists them.
        beyond("GET", "/snapshots/S", Value::Null, Value::Null),
        // An empty body was seen to hang.
        beyond(
            "POST",
            "/sandboxes/ID/resume",
            json!("application/json"),
            json!({}),
        ),
    ]
});

pub(super) struct Seen<'a> {
    pub method: &'a str,
    /// With `SUB`, `RG`, `GRP`, `ID` and `S` in place of names.
    pub path: &'a str,
    pub query: &'a BTreeMap<String, String>,
    pub content_type: Option<&'a str>,
    pub json: Option<&'a Value>,
}

/// What is wrong with a request.
pub(super) fn check(seen: &Seen<'_>) -> Result<(), String> {
    let all = RECORDED["requests"].as_array().unwrap();
    let same: Vec<&Value> = (all.iter().chain(BEYOND.iter()))
        .filter(|one| one["method"] == seen.method && one["path"] == seen.path)
        .collect();
    if same.is_empty() {
        return Err("no such request was recorded".into());
    }
    let names = |one: &Value| -> Vec<String> {
        one["query"].as_object().unwrap().keys().cloned().collect()
    };
    let mut own: Vec<String> = seen.query.keys().cloned().collect();
    own.sort();
    let fits = |one: &&Value| {
        let mut names = names(one);
        names.sort();
        names == own && one["query"]["api-version"] == seen.query["api-version"]
    };
    if !same.iter().any(fits) {
        return Err(format!("the query has {own:?}"));
    }
    if !same
        .iter()
        .any(|one| one["content_type"].as_str() == seen.content_type)
    {
        return Err(format!("the type is {:?}", seen.content_type));
    }
    let Some(json) = seen.json else {
        return Ok(());
    };
    let mut shapes: Vec<Value> = same.iter().map(|one| one["json"].clone()).collect();
    // A policy about the lifecycle has the same form wherever it is.
    if seen.path.ends_with("/sandboxes") {
        let lifecycle = all.iter().find(|one| one["op"] == "lifecycle").unwrap();
        shapes.push(json!({"lifecycle": lifecycle["json"]}));
    }
    if seen.path.ends_with("/lifecycle") {
        let bodies = all.iter().map(|one| &one["json"]["lifecycle"]);
        shapes.extend(bodies.filter(|one| one.is_object()).cloned());
    }
    let shapes: Vec<&Value> = shapes.iter().collect();
    fields(json, &shapes, "")
}

/// Every field must be in one of the shapes.
fn fields(json: &Value, shapes: &[&Value], place: &str) -> Result<(), String> {
    match json {
        // The names in it are our own.
        Value::Object(_) if place.ends_with("/labels") => Ok(()),
        Value::Object(object) => {
            for (name, value) in object {
                let below: Vec<&Value> =
                    shapes.iter().filter_map(|shape| shape.get(name)).collect();
                let place = format!("{place}/{name}");
                if below.is_empty() {
                    return Err(format!("the field {place} was not recorded"));
                }
                fields(value, &below, &place)?;
            }
            Ok(())
        }
        Value::Array(all) => {
            let below: Vec<&Value> = (shapes.iter())
                .filter_map(|shape| shape.as_array())
                .flatten()
                .collect();
            all.iter()
                .try_for_each(|value| fields(value, &below, place))
        }
        value => {
            let same =
                |shape: &&Value| std::mem::discriminant(*shape) == std::mem::discriminant(value);
            match shapes.iter().any(same) {
                true => Ok(()),
                false => Err(format!("the type of {place} is another one")),
            }
        }
    }
}

#[test]
fn what_was_not_recorded_is_noticed() {
    let group = "/subscriptions/SUB/resourceGroups/RG/sandboxGroups/GRP";
    let version = ("api-version".to_owned(), "2026-02-01-preview".to_owned());
    let query = BTreeMap::from([version.clone()]);
    let sent = |method, path: &str, query: &BTreeMap<String, String>, json: Option<Value>| {
        check(&Seen {
            method,
            path,
            query,
            content_type: json.as_ref().map(|_| "application/json"),
            json: json.as_ref(),
        })
    };
    let create = format!("{group}/sandboxes");
    let good = json!({"egressPolicy": {"defaultAction": "Deny"}});
    assert_eq!(sent("PUT", &create, &query, Some(good)), Ok(()));
    let misspelt = json!({"egress_policy": {"defaultAction": "Deny"}});
    assert!(sent("PUT", &create, &query, Some(misspelt)).is_err());
    let number = json!({"resources": {"cpu": 1}});
    assert!(sent("PUT", &create, &query, Some(number)).is_err());
    assert!(
        sent("POST", &create, &query, Some(Value::Null)).is_err(),
        "the verb"
    );
    assert!(
        sent("GET", &format!("{group}/nothing"), &query, None).is_err(),
        "the path"
    );
    let more = BTreeMap::from([version, ("top".into(), "1".into())]);
    assert!(sent("GET", &create, &more, None).is_err(), "the query");

    let resume = format!("{group}/sandboxes/ID/resume");
    assert_eq!(sent("POST", &resume, &query, Some(json!({}))), Ok(()));
    let force = json!({"force": true});
    assert!(sent("POST", &resume, &query, Some(force)).is_err());
    let snapshot = format!("{group}/snapshots/S");
    assert_eq!(sent("GET", &snapshot, &query, None), Ok(()));
    assert!(sent("GET", &snapshot, &more, None).is_err());
    assert!(sent("GET", &snapshot, &query, Some(json!({}))).is_err());
}
