//! Lists of the service, which may come in pages.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::Value;

use crate::client::{Call, Client, Failure};
use crate::settings;

/// More pages than this are no list.
const MOST_PAGES: usize = 1000;

pub(crate) fn id_of(value: &Value) -> Result<String, Failure> {
    let id = value["id"].as_str().unwrap_or_default();
    match settings::check_segment(id) {
        Ok(()) => Ok(id.to_owned()),
        Err(_) => Err(Failure::Unreadable("it has no valid id".into())),
    }
}

pub(crate) fn ids(sandboxes: &[Value]) -> Vec<String> {
    sandboxes.iter().filter_map(|one| id_of(one).ok()).collect()
}

/// All sandboxes of the group with a label.
pub(crate) async fn sandboxes(
    client: &Client,
    label: Option<(&str, &str)>,
) -> Result<Vec<Value>, Failure> {
    pages(client, "/sandboxes", label).await
}

/// All entries of a list, in whichever of its forms. One that does not end is an error.
pub(crate) async fn pages(
    client: &Client,
    path: &str,
    label: Option<(&str, &str)>,
) -> Result<Vec<Value>, Failure> {
    let first = Call::new(Method::GET, path.to_owned());
    let mut call = match label {
        Some((name, value)) => first.query("labels", format!("{name}={value}")),
        None => first,
    };
    let (mut all, mut links) = (Vec::new(), HashSet::new());
    loop {
        let mut page = client.repeated(&call).await?;
        let link = page["nextLink"].as_str().map(str::to_owned);
        let entries = page.get_mut("value").map(Value::take).unwrap_or(page);
        let Value::Array(entries) = entries else {
            return Err(Failure::Unreadable("it is no list".into()));
        };
        all.extend(entries);
        let Some(link) = link.filter(|link| !link.is_empty()) else {
            return Ok(all);
        };
        call = Call::link(client.next_page(&link)?);
        if !links.insert(link) || links.len() >= MOST_PAGES {
            return Err(Failure::Unreadable("a list does not end".into()));
        }
    }
}
