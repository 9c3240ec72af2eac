//! The proxy: what is allowed passes, what is not is told apart, and all of it is on record. Each
//! refusal stands beside the same thing allowed.

use crate::common::server::Server;
use crate::common::{Lab, PUBLIC, allowing, lab, read_all, socks};
use brig_egress::LayerKind;

#[test]
fn a_request_is_passed_on_or_refused_with_a_reason() {
    let server = Server::plain();
    let lab = lab(&server);
    let good = lab.get("http://good.example/a?b");
    assert!(
        good.starts_with("HTTP/1.1 200") && good.contains("hello /a?b"),
        "{good}"
    );
    assert!(
        !good.contains("forged"),
        "only the gateway gives reasons: {good}"
    );
    let bad = lab.get("http://bad.example/");
    assert!(bad.starts_with("HTTP/1.1 403"), "{bad}");
    assert!(bad.contains("x-brig-reason: network.no-rule\r\n"), "{bad}");
    assert!(
        bad.ends_with(
            "`bad.example:80` is denied: no rule allows it; \
             `brig sandbox allow bad.example` would allow it\n"
        ),
        "{bad}"
    );
    assert_eq!(
        lab.looked_up(),
        ["good.example"],
        "no lookup before the decision"
    );
    assert_eq!(lab.dialled(), [format!("{PUBLIC}:80")]);
    assert_eq!(lab.codes(), ["network.rule", "network.no-rule"]);
}

#[test]
fn every_decision_is_on_record_with_bytes_and_execution() {
    let server = Server::plain();
    let lab = lab(&server);
    lab.gateway.set_execution(Some("exec-7"));
    lab.get("http://good.example/bytes/100000");
    crate::common::eventually("the end is told", || {
        !lab.seen.closed.lock().expect("not poisoned").is_empty()
    });
    let closed = lab.seen.closed.lock().expect("not poisoned")[0].clone();
    let decided = lab.seen.decided.lock().expect("not poisoned")[0].clone();
    assert_eq!(closed.id, decided.id);
    assert_eq!(decided.execution.as_deref(), Some("exec-7"));
    assert_eq!(decided.address, PUBLIC.parse().ok());
    assert_eq!(decided.decision.layer, Some(LayerKind::Run));
    assert_eq!(
        decided
            .decision
            .rule
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("good.example")
    );
    assert!(
        closed.received > 100_000 && closed.sent > 20 && closed.sent < 1000,
        "{closed:?}"
    );
    assert!(closed.end.is_none(), "{closed:?}");
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let server = Server::plain();
    let lab = lab(&server);
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    *lab.seen.full.lock().expect("not poisoned") = true;
    let refused = lab.get("http://good.example/");
    assert!(
        refused.contains("x-brig-reason: network.unrecorded"),
        "{refused}"
    );
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_redirect_to_another_host_is_another_request() {
    let server = Server::plain();
    let lab = lab(&server);
    let redirected = lab.get("http://good.example/redirect/evil.io/");
    assert!(
        redirected.contains("Location: http://evil.io/")
            || redirected.contains("location: http://evil.io/"),
        "{redirected}"
    );
    assert!(lab.get("http://evil.io/").contains("network.no-rule"));
}

#[test]
fn what_concerns_only_the_proxy_goes_no_further() {
    let server = Server::plain();
    let lab = lab(&server);
    lab.raw(b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nX-Own: 1\r\nConnection: close, X-Own\r\n\r\n");
    let head = server
        .requests()
        .pop()
        .expect("a request")
        .to_ascii_lowercase();
    assert!(
        !head.contains("proxy-") && !head.contains("x-own"),
        "{head}"
    );
}

#[test]
fn a_denial_reads_the_same_everywhere() {
    let lab = Lab::new(allowing(&["good.example"]));
    let text = "`bad.example:443` is denied: no rule allows it; `brig sandbox allow bad.example` would allow it";
    let (mut stream, _) = lab.tunnel("bad.example:443");
    assert_eq!(read_all(&mut stream), format!("{text}\n"));
    assert_eq!(lab.last_denial(), text);
    socks(&lab, "bad.example:443");
    assert_eq!(lab.last_denial(), text);
    assert!(lab.get("http://bad.example:443/").contains(text));
}
