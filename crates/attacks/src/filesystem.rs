//! Files of the host, by path, through `/proc`, through descriptors (attacks 1, 3, 4, 5).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brig_sandbox::{Request, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::target::{AttackTarget, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! filesystem {
    ($target:path) => {
        $crate::attacks!($target, filesystem:
            host_files_are_out_of_reach,
            nothing_of_the_host_is_found_by_looking_everywhere,
            sessions_do_not_see_each_others_files,
            proc_shows_only_the_confined_root,
            no_descriptor_of_the_host_is_inherited,
            the_launcher_is_not_overwritten,
        );
    };
}

/// Attack 1.
pub async fn host_files_are_out_of_reach(target: &AttackTarget) {
    let marker = host::marker();
    let scratch = host::scratch();
    let home = tempfile::Builder::new()
        .prefix(".brig-attack-")
        .tempdir_in(home())
        .unwrap();
    let secrets = [
        scratch.path().join("secret"),
        home.path().join("id_ed25519"),
    ];
    for secret in &secrets {
        fs::write(secret, &marker).unwrap();
        fs::set_permissions(secret, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let mut targets: Vec<_> = secrets
        .iter()
        .map(|path| json!({"name": path, "path": path, "text": marker}))
        .collect();
    targets.push(json!({"name": "shadow", "path": "/etc/shadow", "text": "root:"}));
    targets.push(
        json!({"name": "test binary", "path": std::env::current_exe().unwrap(), "text": "ELF"}),
    );
    let args = json!({"targets": targets});

    let control = Fence::plain().run(&probe!("read"), &args).whole();
    let inside = target.run(&probe!("read"), &args).await;
    inside.assert_held_except(&control, |attempt| {
        (attempt.attempt == "shadow" && !host::is_root())
            .then(|| "an ordinary user may not read /etc/shadow anyway".into())
    });
}

fn home() -> std::path::PathBuf {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    home.filter(|home| {
        home.is_dir() && rustix::fs::access(home, rustix::fs::Access::WRITE_OK).is_ok()
    })
    .unwrap_or_else(std::env::temp_dir)
}

/// Attack 1, without knowing where to look.
pub async fn nothing_of_the_host_is_found_by_looking_everywhere(target: &AttackTarget) {
    let scratch = host::scratch();
    let name = host::marker();
    fs::write(scratch.path().join(&name), "x").unwrap();

    let near = json!({"roots": [scratch.path()], "name": name});
    Fence::plain()
        .run(&probe!("walk"), &near)
        .whole()
        .assert_all_worked();
    let all = json!({"roots": ["/"], "name": name});
    target.run(&probe!("walk"), &all).await.assert_all_failed();
}

/// Attack 1: another session's workspace.
pub async fn sessions_do_not_see_each_others_files(target: &AttackTarget) {
    let marker = host::marker();
    let owner = target.session(SessionConfig::default()).await;
    let other = target.session(SessionConfig::default()).await;
    let script = format!("for d in /workspace /tmp /dev/shm; do echo {marker} > $d/secret; done");
    let wrote = owner
        .run(vec!["sh".into(), "-c".into(), script])
        .await
        .unwrap();
    assert!(wrote.outcome.success());

    let places = ["/workspace/secret", "/tmp/secret", "/dev/shm/secret"];
    let targets: Vec<_> = places
        .iter()
        .map(|path| json!({"name": path, "path": path, "text": marker}))
        .collect();
    let args = json!({"targets": targets});
    let control = run_in(&owner, &probe!("read"), &args).await;
    let inside = run_in(&other, &probe!("read"), &args).await;
    inside.assert_held(&control);
    owner.destroy().await.unwrap();
    other.destroy().await.unwrap();
}

/// Attack 3.
pub async fn proc_shows_only_the_confined_root(target: &AttackTarget) {
    let marker = host::marker();
    let scratch = host::scratch();
    let secret = scratch.path().join("secret");
    fs::write(&secret, &marker).unwrap();
    let up = "/..".repeat(16);
    let ways = [
        "/proc/self/root",
        "/proc/1/root",
        "/proc/thread-self/root",
        "/proc/self/task/1/root",
        &format!("/proc/self/cwd{up}"),
        &format!("/proc/1/cwd{up}"),
        &format!("/proc/self/root{up}"),
        &format!("/dev/fd{up}"),
        &format!("/workspace{up}"),
        &up,
    ]
    .map(|way| format!("{way}{}", secret.display()));
    let targets: Vec<_> = ways
        .iter()
        .map(|path| json!({"name": path, "path": path, "text": marker}))
        .collect();
    let args = json!({"targets": targets});

    // In a PID namespace of its own process 1 is the prober's, as it is inside.
    let control = Fence::processes().run(&probe!("read"), &args).whole();
    let inside = target.run(&probe!("read"), &args).await;
    inside.assert_held_except(&control, |attempt| {
        (attempt.attempt.starts_with("/workspace") || attempt.attempt.contains("/task/1/"))
            .then(|| "the host has no such folder".into())
    });
}

/// Attack 4: a descriptor that its owner forgot to close, CVE-2024-21626.
pub async fn no_descriptor_of_the_host_is_inherited(target: &AttackTarget) {
    let marker = host::marker();
    let scratch = host::scratch();
    let folder = scratch.path().join(&marker);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(&marker), "secret").unwrap();
    // Without O_CLOEXEC: every child of this process inherits it unless somebody prevents it.
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
    let forgotten = rustix::fs::open(&folder, flags, rustix::fs::Mode::empty()).unwrap();
    let args = json!({"marker": marker});

    let control = Fence::plain().run(&probe!("descriptors"), &args).whole();
    for leak in [
        "more than the standard streams",
        "a descriptor on the host's folder",
        "the host's folder through a descriptor",
    ] {
        assert!(
            control.ok(leak),
            "the leak is not there to be found: {control:#?}"
        );
    }
    target
        .run(&probe!("descriptors"), &args)
        .await
        .assert_all_failed();
    let session = target.session(SessionConfig::default()).await;
    run_in(&session, &probe!("descriptors"), &args)
        .await
        .assert_all_failed();
    session.destroy().await.unwrap();
    drop(forgotten);
}

/// Attack 5: CVE-2019-5736.
pub async fn the_launcher_is_not_overwritten(target: &AttackTarget) {
    let scratch = host::scratch();
    let victim = scratch.path().join("sleep");
    fs::copy("/bin/sleep", &victim).unwrap();
    let before = host::digest(&victim);
    let control = Fence::plain()
        .run(&probe!("launcher"), &json!({"victim": victim}))
        .whole();
    control.assert_all_worked();
    assert_ne!(
        host::digest(&victim),
        before,
        "the technique has to work on an open launcher"
    );

    let launcher = host::digest("/proc/self/exe");
    let session = target.session(SessionConfig::default()).await;
    run_in(&session, &probe!("launcher"), &json!({}))
        .await
        .assert_all_failed();
    // The program is resolved by the one who starts it: whose program is `self` then?
    for name in ["/proc/self/exe", "/proc/1/exe", "/proc/thread-self/exe"] {
        let _ = session
            .start(Request::command([name]))
            .await
            .unwrap()
            .wait()
            .await;
        let bait = format!("printf '#!{name}\\n' > bait; chmod +x bait; ./bait");
        let _ = session
            .run(vec!["sh".into(), "-c".into(), bait])
            .await
            .unwrap();
        let _ = session.run(vec!["/workspace/bait".into()]).await;
    }
    assert_eq!(host::digest("/proc/self/exe"), launcher);
    let after = session.run(vec!["/bin/true".into()]).await.unwrap();
    assert!(after.outcome.success(), "the session still works");
    session.destroy().await.unwrap();
    assert!(Path::new("/proc/self/exe").exists());
}
