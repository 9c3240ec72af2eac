//! Links that lead out of the workspace, through every way files are moved (attacks 2 and 29).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use brig_sandbox::{Event, Session, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::swapper::{Rest, Swapper};
use crate::target::{AttackTarget, attempts, mount_spec, request};
use crate::{host, probe};

#[macro_export]
macro_rules! links {
    ($target:path) => {
        $crate::attacks!($target, links:
            links_are_not_followed_by_the_file_api,
            links_in_a_host_workspace_are_not_followed,
            a_swapped_folder_does_not_redirect_uploads,
            a_swapped_mount_source_is_not_mounted,
            hard_links_do_not_leave_the_workspace,
        );
    };
}

async fn sh(session: &Session, script: &str) {
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
}

async fn download(session: &Session, path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    session.download(path, &mut bytes).await.ok().map(|_| bytes)
}

async fn upload(session: &Session, path: &str) -> bool {
    session
        .upload(path, 0o644, &mut &b"uploaded"[..])
        .await
        .is_ok()
}

/// Attack 2, and 29: what is read on behalf of the code is never the reader's own.
pub async fn links_are_not_followed_by_the_file_api(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    sh(
        &session,
        "mkdir dir; echo content > dir/file; echo x > /tmp/outside",
    )
    .await;
    assert_eq!(
        download(&session, "dir/file").await.as_deref(),
        Some(&b"content\n"[..])
    );
    assert!(upload(&session, "dir/new").await);
    assert_eq!(session.list_files("dir").await.unwrap().len(), 2);

    for (name, target) in [
        ("passwd", "/etc/passwd"),
        ("outside", "/tmp/outside"),
        ("environ", "/proc/self/environ"),
        ("cmdline", "/proc/1/cmdline"),
        ("descriptor", "/dev/fd/0"),
        ("thread", "/proc/thread-self/environ"),
        ("fresh", "/tmp/fresh"),
        ("inner", "dir/file"),
    ] {
        sh(&session, &format!("ln -sfn {target} {name}")).await;
        assert_eq!(
            download(&session, name).await,
            None,
            "read through {name} -> {target}"
        );
        let _ = upload(&session, name).await;
        sh(
            &session,
            "test ! -e /tmp/fresh; test \"$(cat /tmp/outside)\" = x",
        )
        .await;
        sh(&session, "test \"$(cat dir/file)\" = content").await;
    }
    for (name, target) in [
        ("etc", "/etc"),
        ("root", "/"),
        ("proc", "/proc/self"),
        ("tmp", "/tmp"),
    ] {
        sh(&session, &format!("ln -sfn {target} {name}")).await;
        assert!(
            session.list_files(name).await.is_err(),
            "listed {name} -> {target}"
        );
    }
    for path in [
        "etc/passwd",
        "root/etc/passwd",
        "proc/environ",
        "tmp/outside",
    ] {
        assert_eq!(
            download(&session, path).await,
            None,
            "read {path} through a folder link"
        );
    }
    assert!(!upload(&session, "tmp/made").await);
    sh(&session, "test ! -e /tmp/made").await;
    session.destroy().await.unwrap();
}

/// Attack 2, where the workspace is a host directory and the link leads to the host.
pub async fn links_in_a_host_workspace_are_not_followed(target: &AttackTarget) {
    let (workspace, elsewhere) = (host::open_scratch(), host::open_scratch());
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::write(workspace.path().join("plain"), "plain").unwrap();
    symlink(&secret, workspace.path().join("link")).unwrap();
    symlink(elsewhere.path(), workspace.path().join("folder")).unwrap();

    let config = SessionConfig {
        workspace: Some(workspace.path().into()),
        ..Default::default()
    };
    let session = target.session(config).await;
    assert_eq!(
        download(&session, "plain").await.as_deref(),
        Some(&b"plain"[..])
    );
    assert_eq!(
        fs::read_to_string(workspace.path().join("link")).unwrap(),
        "secret"
    );

    assert_eq!(download(&session, "link").await, None);
    assert_eq!(download(&session, "folder/secret").await, None);
    assert!(session.list_files("folder").await.is_err());
    let _ = upload(&session, "link").await;
    assert!(!upload(&session, "folder/made").await);
    let inside = session
        .run(vec!["cat".into(), "link".into()])
        .await
        .unwrap();
    assert!(
        !inside.outcome.success(),
        "the code itself must not get there either"
    );
    session.destroy().await.unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

/// Attack 2, with a folder that turns into a link and back all the time.
pub async fn a_swapped_folder_does_not_redirect_uploads(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    let args = json!({"target": "/tmp/target"});
    let mut asked = request(&probe!("swap"), &args);
    asked.stream = true;
    let mut racing = session.start(asked).await.unwrap();
    while !matches!(racing.next_event().await, None | Some(Event::Stdout(_))) {}
    let (mut through, mut refused) = (0, 0);
    let start = Instant::now();
    while (through < 100 || refused < 100) && start.elapsed() < Duration::from_secs(40) {
        match upload(&session, &format!("d/{}", through + refused)).await {
            true => through += 1,
            false => refused += 1,
        }
    }
    assert!(upload(&session, "stop").await);
    let counted = attempts(&racing.wait().await.unwrap()).whole();
    session.destroy().await.unwrap();
    assert!(
        through > 0 && refused > 0,
        "both sides were met: {through} and {refused}"
    );
    assert_eq!(
        counted.get("counted").value,
        json!([through, 0]),
        "an upload went elsewhere"
    );
}

/// The source of a mount is replaced by a link after the caller named it.
pub async fn a_swapped_mount_source_is_not_mounted(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let (source, link) = (scratch.path().join("source"), scratch.path().join("link"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("plain"), "plain").unwrap();
    symlink("/etc", &link).unwrap();
    let config = |path: &std::path::Path| SessionConfig {
        mounts: vec![mount_spec(path, "/mnt/data", false)],
        ..SessionConfig::default()
    };
    let args = json!({"targets": [
        {"name": "plain", "path": "/mnt/data/plain", "text": "plain"},
    ]});
    target
        .run_with(config(&source), &probe!("read"), &args)
        .await
        .assert_all_worked();

    // A link to a place that is refused is refused as that place.
    let refused = target.report(config(&link), &probe!("read"), &args).await;
    assert_eq!(refused.unwrap_err().code(), "input.mount");
    // A link that changes its mind while the mount is made.
    let moving = scratch.path().join("moving");
    let swapper = Swapper::start(&moving, [&source, Path::new("/etc")]);
    let peek = json!({"targets": [
        {"name": "plain", "path": "/mnt/data/plain", "text": "plain"},
        {"name": "passwd", "path": "/mnt/data/passwd", "text": "root:"},
    ]});
    // A mount takes long and a refusal does not: now and then the link stays as it is, so that both are met.
    for rest in [
        Rest::No,
        Rest::No,
        Rest::First,
        Rest::No,
        Rest::No,
        Rest::Second,
    ]
    .repeat(3)
    {
        swapper.rest(rest);
        match target.report(config(&moving), &probe!("read"), &peek).await {
            Ok(report) => {
                let attempts = attempts(&report).whole();
                assert!(
                    !attempts.ok("passwd"),
                    "the link was followed to /etc: {attempts:#?}"
                );
                assert_ne!(rest, Rest::Second, "a link to /etc is refused");
                assert!(rest == Rest::No || attempts.ok("plain"), "{attempts:#?}");
            }
            Err(error) => assert_ne!(rest, Rest::First, "{error}"),
        }
    }
    drop(swapper);
    let control = Fence::plain().run(
        &probe!("read"),
        &json!({"targets": [
            {"name": "passwd", "path": link.join("passwd"), "text": "root:"},
        ]}),
    );
    control.whole().assert_all_worked();
}

/// A hard link in a mounted folder is the same file: none can be made to what is not mounted.
pub async fn hard_links_do_not_leave_the_workspace(target: &AttackTarget) {
    let scratch = host::open_scratch();
    fs::create_dir_all(scratch.path().join("there")).unwrap();
    fs::set_permissions(
        scratch.path().join("there"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    fs::write(scratch.path().join("there/there"), "there").unwrap();
    let folder = scratch.path().join("there");
    let both = SessionConfig {
        mounts: vec![
            mount_spec(&folder, "/mnt/ro", false),
            mount_spec(&folder, "/mnt/rw", true),
        ],
        ..SessionConfig::default()
    };
    let args = json!({"read_only": "/mnt/ro", "writable": "/mnt/rw"});
    let inside = target
        .run_with(both.clone(), &probe!("crossing"), &args)
        .await;
    let control = json!({"read_only": "/mnt/ro", "writable": "/mnt/rw", "into": "/mnt/rw"});
    let control = target.run_with(both, &probe!("crossing"), &control).await;
    inside.assert_held_except(&control, |attempt| target.lacks(attempt));
}
