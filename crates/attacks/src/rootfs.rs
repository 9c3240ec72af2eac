//! Root file systems and workspaces that were prepared by an attacker (attacks 6 and 7).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use brig_sandbox::{Report, Request, Result, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::ground::{Ground, agent, mount_spec, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! rootfs {
    ($ground:path) => {
        $crate::attacks!($ground, rootfs:
            a_hostile_root_does_not_lead_to_the_host,
            nothing_is_mounted_into_what_the_code_can_write,
            a_racing_execution_does_not_redirect_setup,
        );
    };
}

/// A root with nothing but a shell in it.
fn small_root() -> tempfile::TempDir {
    let root = host::scratch();
    for folder in [
        "bin",
        "dev",
        "proc",
        "sys",
        "tmp",
        "etc",
        "usr",
        "workspace",
        "run",
        "mnt",
    ] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    let listing = Command::new("ldd").arg("/bin/sh").output().unwrap();
    let text = String::from_utf8(listing.stdout).unwrap();
    let libraries = text
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from);
    for file in libraries.chain([PathBuf::from("/bin/sh")]) {
        let place = root.path().join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&file, &place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    root
}

async fn hello(ground: &Ground, root: &Path, data: &Path) -> Result<Report> {
    let config = SessionConfig {
        rootfs: Some(root.into()),
        mounts: vec![mount_spec(data, "/mnt/data", false)],
        ..SessionConfig::default()
    };
    let script = "echo hello; echo x > /dev/null; echo x > /dev/made; echo x > /proc/made; \
                  echo x > /etc/made; echo x > /tmp/made; exit 0";
    ground
        .sandbox
        .run_once(
            &agent(),
            config,
            Request::command(["/bin/sh", "-c", script]),
        )
        .await
}

/// Everything a host folder holds, with contents.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .collect();
    all.sort();
    all
}

/// Attack 6: CVE-2025-31133, CVE-2025-52565 and their kind.
pub async fn a_hostile_root_does_not_lead_to_the_host(ground: &Ground) {
    let (root, data) = (small_root(), host::scratch());
    let report = hello(ground, root.path(), data.path()).await.unwrap();
    assert_eq!(
        report.outcome.unwrap().stdout.bytes,
        b"hello\n",
        "an honest root works"
    );

    let names = [
        "dev",
        "proc",
        "sys",
        "tmp",
        "etc",
        "workspace",
        "run",
        "dev/null",
        "dev/pts",
        "mnt",
        "mnt/data",
        "dev/console",
        "dev/shm",
        "dev/ptmx",
        "dev/tty",
        "etc/passwd",
        "etc/hosts",
        "etc/resolv.conf",
    ];
    for name in names {
        for absolute in [true, false] {
            let (root, elsewhere) = (small_root(), host::open_scratch());
            let victim = elsewhere.path().join("victim");
            fs::write(&victim, "untouched").unwrap();
            fs::set_permissions(&victim, fs::Permissions::from_mode(0o666)).unwrap();
            let is_file = name.starts_with("etc/")
                || ["dev/null", "dev/console", "dev/ptmx", "dev/tty"].contains(&name);
            let target = if is_file {
                victim.clone()
            } else {
                elsewhere.path().to_owned()
            };
            let link = root.path().join(name);
            let _ = fs::remove_dir(&link);
            if absolute {
                symlink(&target, &link).unwrap();
            } else {
                let up = "../".repeat(12);
                symlink(
                    Path::new(&up).join(target.strip_prefix("/").unwrap()),
                    &link,
                )
                .unwrap();
            }
            let before = snapshot(elsewhere.path());
            assert!(
                fs::metadata(&link).is_ok(),
                "the link leads there from outside"
            );
            let answer = hello(ground, root.path(), data.path()).await;
            assert_eq!(
                snapshot(elsewhere.path()),
                before,
                "{name} led to the host: {answer:?}"
            );
            if let Err(error) = answer {
                assert!(
                    ["backend.setup", "input.config", "input.mount"].contains(&error.code()),
                    "{error}"
                );
            }
        }
    }
}

/// Attack 7, as it could happen here: the code of one session prepares the folder in which a
/// mount of the next one would be attached. There are no such mounts.
pub async fn nothing_is_mounted_into_what_the_code_can_write(ground: &Ground) {
    let (workspace, data) = (host::open_scratch(), host::scratch());
    fs::write(data.path().join("mounted"), "mounted").unwrap();
    let config = |target: &str| SessionConfig {
        workspace: Some(workspace.path().into()),
        mounts: vec![mount_spec(data.path(), target, false)],
        ..SessionConfig::default()
    };
    let args = |folder: &str| {
        let path = format!("{folder}/mounted");
        json!({"targets": [{"name": "mounted", "path": path, "text": "mounted"}]})
    };
    let beside = ground
        .run_with(config("/mnt/data"), &probe!("read"), &args("/mnt/data"))
        .await;
    beside.assert_all_worked();

    fs::create_dir(workspace.path().join("real")).unwrap();
    symlink("/proc", workspace.path().join("link")).unwrap();
    let targets = [
        "/workspace/real",
        "/workspace/link",
        "/workspace/link/sys",
        "/workspace",
        "/tmp/data",
        "/dev/shm/data",
        "/proc/self",
        "/proc",
        "/dev",
        "/sys",
        "/",
    ];
    for target in targets {
        match ground
            .report(config(target), &probe!("read"), &args(target))
            .await
        {
            Err(error) => assert_eq!(error.code(), "input.mount", "{target}: {error}"),
            // The place is private and fresh in every sandbox: nobody prepared it.
            Ok(_) => assert!(
                target.starts_with("/tmp/") || target.starts_with("/dev/shm/"),
                "{target}"
            ),
        }
    }
}

/// Attack 7: while one execution moves everything it can move, others are set up beside it.
pub async fn a_racing_execution_does_not_redirect_setup(ground: &Ground) {
    let session = ground.session(SessionConfig::default()).await;
    let moving = "end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do \
        for d in /proc /dev /tmp /run /run/brig /dev/shm /dev/pts /etc; do mv -T $d $d.x; ln -sfn /workspace $d; mv -T $d.x $d; done; \
        ln -sfn /proc/sys /tmp/a; ln -sfn /tmp/a /workspace/proc; rm -f /workspace/proc; mkdir -p /workspace/proc; rmdir /workspace/proc; done 2>/dev/null";
    let racer = session
        .start(Request::command(["sh", "-c", moving]))
        .await
        .unwrap();
    let args = json!({"targets": [
        {"name": "status", "path": "/proc/self/status", "text": "NSpid"},
        {"name": "mounts", "path": "/proc/self/mountinfo", "text": " /proc "},
    ]});
    Fence::processes()
        .run(&probe!("read"), &args)
        .whole()
        .assert_all_worked();
    for _ in 0..20 {
        run_in(&session, &probe!("read"), &args)
            .await
            .assert_all_worked();
    }
    racer.cancel();
    racer.wait().await.unwrap();
    session.destroy().await.unwrap();
}
