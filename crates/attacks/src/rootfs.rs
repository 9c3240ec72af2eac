//! Root file systems and workspaces that were prepared by an attacker (attacks 6 and 7).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use brig_sandbox::{Report, Request, Result, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::target::{AttackTarget, agent, mount_spec, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! rootfs {
    ($target:path) => {
        $crate::attacks!($target, rootfs:
            a_hostile_root_does_not_lead_to_the_host,
            nothing_is_mounted_into_what_the_code_can_write,
            a_racing_execution_does_not_redirect_setup,
            what_an_allowlist_names_cannot_be_overwritten,
            a_denied_program_has_no_other_name,
        );
    };
}

/// A root with nothing but a shell in it.
pub(crate) fn small_root() -> tempfile::TempDir {
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

async fn hello(target: &AttackTarget, root: &Path, data: &Path) -> Result<Report> {
    let config = SessionConfig {
        rootfs: Some(root.into()),
        mounts: vec![mount_spec(data, "/mnt/data", false)],
        ..SessionConfig::default()
    };
    let script = "echo hello; echo x > /dev/null; echo x > /dev/made; echo x > /proc/made; \
                  echo x > /etc/made; echo x > /tmp/made; exit 0";
    target
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
pub async fn a_hostile_root_does_not_lead_to_the_host(target: &AttackTarget) {
    let (root, data) = (small_root(), host::scratch());
    let report = hello(target, root.path(), data.path()).await.unwrap();
    assert_eq!(
        report.outcome.stdout.bytes, b"hello\n",
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
            let destination = if is_file {
                victim.clone()
            } else {
                elsewhere.path().to_owned()
            };
            let link = root.path().join(name);
            let _ = fs::remove_dir(&link);
            if absolute {
                symlink(&destination, &link).unwrap();
            } else {
                let up = "../".repeat(12);
                symlink(
                    Path::new(&up).join(destination.strip_prefix("/").unwrap()),
                    &link,
                )
                .unwrap();
            }
            let before = snapshot(elsewhere.path());
            assert!(
                fs::metadata(&link).is_ok(),
                "the link leads there from outside"
            );
            let answer = hello(target, root.path(), data.path()).await;
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
pub async fn nothing_is_mounted_into_what_the_code_can_write(target: &AttackTarget) {
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
    let beside = target
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
    for path in targets {
        match target
            .report(config(path), &probe!("read"), &args(path))
            .await
        {
            Err(error) => assert_eq!(error.code(), "input.mount", "{path}: {error}"),
            // The place is private and fresh in every sandbox: nobody prepared it.
            Ok(_) => assert!(
                path.starts_with("/tmp/") || path.starts_with("/dev/shm/"),
                "{path}"
            ),
        }
    }
}

/// Attack 7: while one execution moves everything it can move, others are set up beside it.
pub async fn a_racing_execution_does_not_redirect_setup(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
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

/// What a list of files is worth depends on who can write to them.
pub async fn what_an_allowlist_names_cannot_be_overwritten(target: &AttackTarget) {
    let root = small_root();
    let tool = root.path().join("bin/tool");
    fs::write(&tool, "#!/bin/sh\necho as listed\n").unwrap();
    for path in [&tool, &root.path().join("bin"), root.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let listed = SessionConfig {
        rootfs: Some(root.path().into()),
        ..crate::commands::under("command_allowlist: [/bin/sh, /bin/tool]\n")
    };
    let run = async |config: SessionConfig, inside: &str| {
        let script = format!(
            "cd {inside}; (echo '#!/bin/sh' > bin/tool; echo 'echo overwritten' >> bin/tool) \
             2>/dev/null; /bin/tool; exit 0"
        );
        let request = Request::command(["/bin/sh", "-c", &script]);
        let report = target.sandbox.run_once(&agent(), config, request).await?;
        let outcome = report.outcome;
        Ok::<_, brig_sandbox::Error>(String::from_utf8_lossy(&outcome.stdout.bytes).into_owned())
    };
    let writable = SessionConfig {
        read_only_root: false,
        ..listed.clone()
    };
    let mut waived = writable.clone();
    waived.waive.insert(brig_sandbox::Control::CommandAllow);
    // What belongs to root, nobody in a sandbox of root's can write to.
    let control = if host::is_root() {
        "as listed\n"
    } else {
        "overwritten\n"
    };
    assert_eq!(run(waived, "/").await.unwrap(), control, "the control");
    assert_eq!(run(listed.clone(), "/").await.unwrap(), "as listed\n");
    let refused = run(writable, "/").await.unwrap_err();
    assert_eq!(refused.code(), "policy.unenforceable", "{refused}");

    // The same files by another path.
    let beside = SessionConfig {
        mounts: vec![mount_spec(root.path(), "/mnt/root", true)],
        ..listed.clone()
    };
    let refused = run(beside, "/mnt/root").await.unwrap_err();
    assert_eq!(refused.code(), "input.config", "{refused}");
    let workspace = SessionConfig {
        workspace: Some(root.path().into()),
        ..listed.clone()
    };
    let refused = run(workspace, "/workspace").await.unwrap_err();
    assert_eq!(refused.code(), "input.config", "{refused}");
    let read_only = SessionConfig {
        mounts: vec![mount_spec(root.path(), "/mnt/root", false)],
        ..listed.clone()
    };
    assert_eq!(run(read_only, "/mnt/root").await.unwrap(), "as listed\n");

    // The same file by another name.
    let beside = host::open_scratch();
    let bin = beside.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o777)).unwrap();
    fs::hard_link(&tool, bin.join("tool")).unwrap();
    let linked = |writable, config: &SessionConfig| SessionConfig {
        mounts: vec![mount_spec(beside.path(), "/mnt/data", writable)],
        ..config.clone()
    };
    let refused = run(linked(true, &listed), "/mnt/data").await.unwrap_err();
    assert_eq!(refused.code(), "input.config", "{refused}");
    assert!(refused.to_string().contains("hard links"), "{refused}");
    let kept = run(linked(false, &listed), "/mnt/data").await;
    assert_eq!(kept.unwrap(), "as listed\n");
    // The control: without the list the file is overwritten that way.
    let unlisted = SessionConfig {
        rootfs: Some(root.path().into()),
        ..SessionConfig::default()
    };
    run(linked(true, &unlisted), "/mnt/data").await.unwrap();
    let text = fs::read_to_string(&tool).unwrap();
    assert!(text.contains("overwritten"), "{text}");
}

/// A file has any number of names, of any bytes.
pub async fn a_denied_program_has_no_other_name(target: &AttackTarget) {
    let root = small_root();
    let tool = root.path().join("bin/tool");
    fs::write(&tool, "#!/bin/sh\necho started\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let names = [&b"bin/other"[..], b"bin/\xff", b"mnt/\xfe/tool-2"];
    for name in names.map(OsStr::from_bytes) {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::hard_link(&tool, path).unwrap();
    }
    let script = r#"for name in tool other $(printf '\377'); do "/bin/$name"; done
        "/mnt/$(printf '\376')/tool-2"; exit 0"#;
    let run = async |config: SessionConfig| {
        let config = SessionConfig {
            rootfs: Some(root.path().into()),
            ..config
        };
        let request = Request::command(["/bin/sh", "-c", script]);
        let report = target.sandbox.run_once(&agent(), config, request).await;
        let outcome = report.unwrap().outcome;
        String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
    };
    let control = run(SessionConfig::default()).await;
    assert_eq!(control, "started\n".repeat(4), "the control");
    let denied = crate::commands::under("command_denylist: [tool]\n");
    assert_eq!(run(denied).await, "");
}
