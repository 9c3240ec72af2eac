//! Files that are no files, folders that are too full, and disks without room.

use std::time::{Duration, Instant};

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Language, Limits, Session, SessionConfig};
use serde_json::json;

use crate::probe;
use crate::target::{AttackTarget, run_in};

#[macro_export]
macro_rules! filetypes {
    ($target:path) => {
        $crate::attacks!($target, filetypes:
            special_files_do_not_hold_up_the_file_api,
            crowded_folders_are_listed_or_refused,
            a_full_disk_can_be_emptied,
        );
    };
}

async fn sh(session: &Session, script: &str) -> Vec<u8> {
    let report = session
        .run(vec!["sh".into(), "-c".into(), script.into()])
        .await
        .unwrap();
    let outcome = report.outcome;
    assert!(
        outcome.success(),
        "{script}: {}",
        String::from_utf8_lossy(&outcome.stderr.bytes)
    );
    outcome.stdout.bytes
}

/// A pipe that nobody writes to, a socket, a file that never ends.
pub async fn special_files_do_not_hold_up_the_file_api(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    let make = "import os, socket\nos.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('socket')\n\
                open('locked', 'w').write('x')\nos.chmod('locked', 0)\nos.mkdir('closed', 0)\nopen('file', 'w').write('x')\n";
    let made = session.execute_code(Language::Python, make).await.unwrap();
    assert!(made.outcome.success());
    let start = Instant::now();
    for name in ["pipe", "socket", "closed"] {
        assert!(
            session.download(name, &mut Vec::new()).await.is_err(),
            "{name} was read"
        );
        assert!(
            session.upload(name, 0o644, &mut &b"x"[..]).await.is_err(),
            "{name} was written"
        );
        assert!(
            session
                .upload(&format!("{name}/x"), 0o644, &mut &b"x"[..])
                .await
                .is_err()
                || name == "closed"
        );
        assert!(
            session.list_files(name).await.is_err() || name == "closed",
            "{name} was listed"
        );
    }
    let _ = session.download("locked", &mut Vec::new()).await;
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "it waited: {:?}",
        start.elapsed()
    );
    assert!(session.list_files(".").await.unwrap().len() >= 5);

    // A file that grows while it is read ends all the same.
    let grow = "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789 >> file; i=$((i+1)); done";
    let growing = session
        .start(brig_sandbox::Request::command(["sh", "-c", grow]))
        .await
        .unwrap();
    for _ in 0..20 {
        let mut bytes = Vec::new();
        session.download("file", &mut bytes).await.unwrap();
    }
    growing.cancel();
    growing.wait().await.unwrap();
    // Set-id bits are not handed in.
    session
        .upload("tool", 0o6755, &mut &b"#!/bin/sh\n"[..])
        .await
        .unwrap();
    assert_eq!(sh(&session, "stat -c %a tool").await, b"755\n");
    session.destroy().await.unwrap();
}

/// More names than fit into one message.
pub async fn crowded_folders_are_listed_or_refused(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    let make = "import os\nos.mkdir('d')\nfor i in range(20000): open(f'd/{i:06}' + 'n' * 200, 'w').close()\n";
    let made = session.execute_code(Language::Python, make).await.unwrap();
    assert!(made.outcome.success());
    match session.list_files("d").await {
        Ok(entries) => assert_eq!(entries.len(), 20_000, "none is left out"),
        Err(error) => assert_eq!(error.code(), "file.failed", "{error}"),
    }
    assert_eq!(
        session.list_files(".").await.unwrap().len(),
        1,
        "the session goes on"
    );
    session.destroy().await.unwrap();
}

/// Code that leaves no room must not lock its session up.
pub async fn a_full_disk_can_be_emptied(target: &AttackTarget) {
    // gVisor counts bytes and no names.
    let ways = [("many small", 0), ("empty files", 200_000)];
    for (way, count) in ways.into_iter().take(if target.own_kernel { 1 } else { 2 }) {
        let limits = Limits {
            disk_bytes: Limit::asked(16 * MIB),
            ..Limits::default()
        };
        let session = target
            .session(SessionConfig {
                limits,
                ..SessionConfig::default()
            })
            .await;
        let fill = json!({"folder": "/workspace", "bytes": 64 * MIB, "count": count, "way": way});
        run_in(&session, &probe!("fill"), &fill)
            .await
            .assert_all_failed();
        // New code may find no room, but says so.
        if let Err(error) = session.execute_code(Language::Python, "print(1)").await {
            assert!(
                ["file.failed", "run.cannot-start"].contains(&error.code()),
                "{error}"
            );
        }
        // What the last execution itself took is free again, but no more than that.
        let mut refused = 0;
        for number in 0..8 {
            let name = format!("more{number}");
            let content = vec![0; 1 << 18];
            refused += usize::from(
                session
                    .upload(&name, 0o644, &mut &content[..])
                    .await
                    .is_err(),
            );
        }
        assert!(refused > 0, "{way}: there was room for more");
        sh(&session, "rm -rf /workspace/*").await;
        let again = session
            .execute_code(Language::Python, "print(1)")
            .await
            .unwrap();
        assert_eq!(
            again.outcome.stdout.bytes, b"1\n",
            "{way}: there is room again"
        );
        session.destroy().await.unwrap();
    }
}
