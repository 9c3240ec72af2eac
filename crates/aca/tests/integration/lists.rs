//! Lists that come in pages: followed as the service names them, but not to another host, and not for ever.

use std::net::TcpListener;

use brig_sandbox::{Sandbox, SessionConfig};
use serde_json::json;

use crate::create::{refused, sandbox, session, text};
use crate::stand_in::{Fault, StandIn};

/// A sandbox whose creation is answered with an error, so that it is looked for in the list. The first list
/// only shows that the group can be used.
async fn looked_for(stand_in: &StandIn, next_link: &str) -> String {
    stand_in.state().next_link = Some(next_link.to_owned());
    stand_in.fail("create", Fault::Status(500, ""));
    let sandbox: Sandbox = sandbox(stand_in);
    let error = refused(&sandbox).await;
    assert_eq!(error.code(), "azure.not-deleted", "{error}");
    stand_in.check_clean();
    error.to_string()
}

#[tokio::test]
async fn a_list_is_followed_as_the_service_names_it() {
    let stand_in = StandIn::start().await;
    let link = stand_in.list_url("api-version=2026-02-01-preview&%24cursor=a%2Fb%3D%3D&last=7");
    stand_in.fail("create", Fault::Lost);
    let page = json!({"value": [{"id": "other", "labels": {}}], "nextLink": link});
    stand_in.fail_after("list", 1, Fault::Answer(page));
    let sandbox = sandbox(&stand_in);
    let session = session(&sandbox, SessionConfig::default()).await;
    assert_eq!(text(&session, "echo one").await.unwrap(), "one\n");
    let requests: Vec<String> = (stand_in.state().requests.iter())
        .map(|(_, uri)| format!("https://localhost{uri}"))
        .collect();
    let port = stand_in.list_url("");
    let port = port.split('/').nth(2).unwrap();
    let link = link.replace(port, "localhost");
    assert_eq!(requests.iter().filter(|uri| **uri == link).count(), 1);
    session.destroy().await.unwrap();
    stand_in.check_clean();
}

/// Positive control: the link of the test above is followed.
#[tokio::test]
async fn a_link_to_another_host_is_not_followed() {
    let stand_in = StandIn::start().await;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let error = looked_for(&stand_in, &format!("https://localhost:{port}/list?n={{n}}")).await;
    assert!(error.contains("at another host"), "{error}");
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "it was connected to");
}

#[tokio::test]
async fn a_list_that_repeats_itself_ends() {
    let stand_in = StandIn::start().await;
    let link = stand_in.list_url("api-version=2026-02-01-preview&cursor=1");
    let error = looked_for(&stand_in, &link).await;
    assert!(error.contains("a list does not end"), "{error}");
}

#[tokio::test]
async fn a_list_that_always_goes_on_ends() {
    let stand_in = StandIn::start().await;
    let link = stand_in.list_url("api-version=2026-02-01-preview&cursor={n}");
    let error = looked_for(&stand_in, &link).await;
    assert!(error.contains("a list does not end"), "{error}");
    assert!(stand_in.count("list") >= 1000, "control: it was followed");
}
