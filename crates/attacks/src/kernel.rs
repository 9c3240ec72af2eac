//! The surface of the kernel (attacks 24 to 28).

use std::fs;

use serde_json::json;

use crate::fence::Fence;
use crate::probe::not_permitted_here;
use crate::target::AttackTarget;
use crate::{host, probe};

#[macro_export]
macro_rules! kernel {
    ($target:path) => {
        $crate::attacks!($target, kernel:
            io_uring_is_closed,
            dangerous_calls_are_denied,
            dangerous_sockets_are_denied,
            other_abis_are_closed,
            memory_files_are_not_executed,
            what_the_machine_shares_is_not_taken,
            a_path_rewritten_in_flight_reaches_nothing,
        );
    };
}

/// Attack 24.
pub async fn io_uring_is_closed(target: &AttackTarget) {
    let scratch = host::scratch();
    fs::write(scratch.path().join("file"), "read me").unwrap();
    let file = json!({"file": scratch.path().join("file")});
    let control = Fence::plain().run(&probe!("uring"), &file).whole();
    let inside = target
        .run(&probe!("uring"), &json!({"file": "/etc/passwd"}))
        .await;
    inside.assert_held_except(&control, not_permitted_here);
}

/// Attack 25.
pub async fn dangerous_calls_are_denied(target: &AttackTarget) {
    let outside = Fence::plain().run(&probe!("calls"), &json!({})).whole();
    let fenced = Fence::namespaces()
        .run(&probe!("calls"), &json!({}))
        .whole();
    let inside = target.run(&probe!("calls"), &json!({})).await;
    inside.assert_held_except(&outside.or(&fenced), not_permitted_here);
}

/// Attack 26.
pub async fn dangerous_sockets_are_denied(target: &AttackTarget) {
    let fenced = Fence::namespaces()
        .run(&probe!("sockets"), &json!({}))
        .whole();
    let inside = target.run(&probe!("sockets"), &json!({})).await;
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
pub async fn other_abis_are_closed(target: &AttackTarget) {
    let young = json!({"young": {"statmount": 457, "listmount": 458, "open_tree_attr": 467}});
    let mut control = Fence::plain().run(&probe!("abi"), &young).whole();
    let mut inside = target.run(&probe!("abi"), &young).await;
    let open = "64-bit entry point, which stays open";
    assert!(
        control.ok(open) && inside.ok(open),
        "the ordinary entry point works on both sides"
    );
    assert!(!inside.ok("unknown numbers"), "{inside:#?}");
    for attempts in [&mut control, &mut inside] {
        attempts.forget(open);
        attempts.forget("unknown numbers");
    }
    inside.assert_held_except(&control, not_permitted_here);
}

/// A program that never was a file escapes every rule about files.
pub async fn memory_files_are_not_executed(target: &AttackTarget) {
    let control = Fence::plain()
        .run(&probe!("memory_files"), &json!({}))
        .whole();
    let inside = target.run(&probe!("memory_files"), &json!({})).await;
    inside.assert_held(&control);
}

/// Attack 28: a path that changes while it is checked, a million times.
pub async fn a_path_rewritten_in_flight_reaches_nothing(target: &AttackTarget) {
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

    let session = target.session(brig_sandbox::SessionConfig::default()).await;
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
        let inside = crate::target::run_in(&session, &probe!("race"), &args).await;
        assert!(inside.ok("reach the allowed file"), "{inside:#?}");
        assert!(
            !inside.ok("reach the forbidden file"),
            "{forbidden}: {inside:#?}"
        );
    }
    session.destroy().await.unwrap();
}

/// Kernel limits that the whole machine shares, and files that the host shares with the sandbox.
pub async fn what_the_machine_shares_is_not_taken(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let file = scratch.path().join("file");
    fs::write(&file, "x").unwrap();
    let container = target.backend.id().kind() != "native";
    // The files of an image are a container's own, but not those of the host that are mounted.
    let read_only = host::open_scratch();
    let locked = read_only.path().join("file");
    fs::write(&locked, "x").unwrap();
    let (shared, seen) = match container {
        true => (locked.to_str().unwrap(), "/mnt/shared/file"),
        false => ("/usr/bin/env", "/usr/bin/env"),
    };
    let outside = json!({"folder": scratch.path(), "shared": shared, "outside": true});
    let control = Fence::plain()
        .run(&probe!("machine_quotas"), &outside)
        .whole();
    let args = json!({"folder": "/mnt/data", "shared": seen});
    let mut config = crate::target::mount(scratch.path(), "/mnt/data", true);
    let read_only = crate::target::mount_spec(read_only.path(), "/mnt/shared", false);
    config.mounts.push(read_only);
    let mut inside = target
        .run_with(config, &probe!("machine_quotas"), &args)
        .await;
    let private = [
        "a watch on programs of the machine",
        "a watch by another path",
    ];
    // So are the accounts and locks of a kernel of its own.
    let accounts = [
        "an exclusive lock on a file of the machine",
        "a shared lock on a file of the machine",
        "filters of one's own without end",
        "netlink sockets without end",
        "a lower chance to be chosen when memory runs out",
    ];
    for name in private.iter().filter(|_| container) {
        inside.forget(name);
    }
    for name in accounts.iter().filter(|_| target.own_kernel) {
        inside.forget(name);
    }
    inside.assert_held_except(&control, |attempt| {
        match (attempt.attempt.as_str(), attempt.errno.as_deref()) {
            (
                "a lease" | "flags of a file",
                Some("EINVAL" | "ENOTTY" | "EOPNOTSUPP" | "EAGAIN"),
            ) => Some("the file system of the tests does not have it".into()),
            ("a key of a TCP connection", Some("ENOPROTOOPT")) => {
                Some("this kernel has no such keys".into())
            }
            _ => not_permitted_here(attempt),
        }
    });
}
