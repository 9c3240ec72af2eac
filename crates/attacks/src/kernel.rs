//! The surface of the kernel (attacks 24 to 28).

use std::fs;

use serde_json::json;

use crate::fence::Fence;
use crate::ground::Ground;
use crate::probe::not_permitted_here;
use crate::{host, probe};

#[macro_export]
macro_rules! kernel {
    ($ground:path) => {
        $crate::attacks!($ground, kernel:
            io_uring_is_closed,
            dangerous_calls_are_denied,
            dangerous_sockets_are_denied,
            other_doors_are_closed,
            memory_files_are_not_executed,
            a_path_rewritten_in_flight_reaches_nothing,
        );
    };
}

/// Attack 24.
pub async fn io_uring_is_closed(ground: &Ground) {
    let scratch = host::scratch();
    fs::write(scratch.path().join("file"), "read me").unwrap();
    let file = json!({"file": scratch.path().join("file")});
    let control = Fence::plain().run(&probe!("uring"), &file).whole();
    let inside = ground
        .run(&probe!("uring"), &json!({"file": "/etc/passwd"}))
        .await;
    inside.assert_held_except(&control, not_permitted_here);
}

/// Attack 25.
pub async fn dangerous_calls_are_denied(ground: &Ground) {
    let outside = Fence::plain().run(&probe!("calls"), &json!({})).whole();
    let fenced = Fence::namespaces()
        .run(&probe!("calls"), &json!({}))
        .whole();
    let inside = ground.run(&probe!("calls"), &json!({})).await;
    inside.assert_held_except(&outside.or(&fenced), not_permitted_here);
}

/// Attack 26.
pub async fn dangerous_sockets_are_denied(ground: &Ground) {
    let fenced = Fence::namespaces()
        .run(&probe!("sockets"), &json!({}))
        .whole();
    let inside = ground.run(&probe!("sockets"), &json!({})).await;
    inside.assert_held_except(&fenced, |attempt| {
        match (attempt.attempt.as_str(), attempt.errno.as_deref()) {
            ("ping" | "ping with high bits", Some("EACCES")) => {
                Some("net.ipv4.ping_group_range allows it to nobody".into())
            }
            _ => not_permitted_here(attempt),
        }
    });
}

/// Attack 27.
pub async fn other_doors_are_closed(ground: &Ground) {
    let young = json!({"young": {"statmount": 457, "listmount": 458, "open_tree_attr": 467}});
    let mut control = Fence::plain().run(&probe!("abi"), &young).whole();
    let mut inside = ground.run(&probe!("abi"), &young).await;
    let open = "64-bit door, the one to leave open";
    assert!(
        control.ok(open) && inside.ok(open),
        "the ordinary door works on both sides"
    );
    assert!(!inside.ok("unknown numbers"), "{inside:#?}");
    for attempts in [&mut control, &mut inside] {
        attempts.forget(open);
        attempts.forget("unknown numbers");
    }
    inside.assert_held_except(&control, not_permitted_here);
}

/// A program that never was a file escapes every rule about files.
pub async fn memory_files_are_not_executed(ground: &Ground) {
    let control = Fence::plain()
        .run(&probe!("memory_files"), &json!({}))
        .whole();
    let inside = ground.run(&probe!("memory_files"), &json!({})).await;
    inside.assert_held(&control);
}

/// Attack 28: a million rounds in which the path changes under the eyes of whoever checks it.
pub async fn a_path_rewritten_in_flight_reaches_nothing(ground: &Ground) {
    let scratch = host::open_scratch();
    let (allowed, forbidden) = (
        scratch.path().join("allowed"),
        scratch.path().join("forbidden"),
    );
    for file in [&allowed, &forbidden] {
        fs::write(file, "x").unwrap();
    }
    let outside =
        json!({"allowed": allowed, "forbidden": forbidden, "rounds": 100_000, "seconds": 10});
    Fence::plain()
        .run(&probe!("race"), &outside)
        .whole()
        .assert_all_worked();

    let session = ground.session(brig_sandbox::SessionConfig::default()).await;
    session
        .upload("allowed", 0o644, &mut &b"x"[..])
        .await
        .unwrap();
    for forbidden in [
        "/etc/passwd",
        "/usr/bin/env",
        "/proc/1/mem",
        &forbidden.display().to_string(),
    ] {
        let args = json!({
            "allowed": "/workspace/allowed", "forbidden": forbidden, "rounds": 250_000, "seconds": 10,
        });
        let inside = crate::ground::run_in(&session, &probe!("race"), &args).await;
        assert!(inside.ok("reach the allowed file"), "{inside:#?}");
        assert!(
            !inside.ok("reach the forbidden file"),
            "{forbidden}: {inside:#?}"
        );
    }
    session.destroy().await.unwrap();
}
