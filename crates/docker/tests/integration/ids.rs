//! Host directories in a container: it runs as the user who owns them, so that nobody else has to be let in,
//! and what it makes there is that user's.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use brig_sandbox::config::MountSpec;
use brig_sandbox::{Request, Sandbox, SessionConfig};

use crate::common::{Engine, ORDINARY, with_option};

const OTHER: u32 = 4002;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that only its owner can use: the caller, or with root another user.
fn private(owner: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("own"), "old\n").expect("a file");
    for path in [folder.path().join("own"), folder.path().to_owned()] {
        if is_root() {
            chown(&path, Some(owner), Some(owner)).expect("chown");
        }
        let mode = if path.is_dir() { 0o700 } else { 0o600 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
    }
    folder
}

fn config(engine: &Engine, workspace: &Path) -> SessionConfig {
    SessionConfig {
        workspace: Some(workspace.to_owned()),
        ..engine.config("runc")
    }
}

/// What a command prints on stdout and stderr.
pub(crate) async fn said(engine: &Engine, config: SessionConfig, script: &str) -> String {
    let sandbox = Sandbox::builder(engine.backend().await)
        .build()
        .expect("a sandbox");
    let agent = "ids".parse().expect("an agent");
    let request = Request::command(["sh", "-c", &format!("exec 2>&1; {script}")]);
    match sandbox.run_once(&agent, config, request).await {
        Ok(report) => {
            let outcome = report.outcome;
            assert!(outcome.killed.is_none(), "{outcome:?}");
            String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
        }
        Err(error) => panic!("{error} {:?}", error.hint()),
    }
}

/// Uses a private directory as the workspace of this config.
pub(crate) async fn check_workspace(engine: &Engine, config: SessionConfig, owner: u32) {
    let folder = private(owner);
    let owned = std::fs::metadata(folder.path()).expect("metadata");
    let config = SessionConfig {
        workspace: Some(folder.path().to_owned()),
        ..config
    };
    let script = "cat own; echo new > own; mkdir made; echo x > made/file; \
                  touch \"$HOME/home\" /tmp/t /dev/shm/s && echo writable; grep -E '^Cap(Eff|Bnd)' /proc/self/status";
    let said = said(engine, config, script).await;
    let none = "0000000000000000";
    let expected = format!("old\nwritable\nCapEff:\t{none}\nCapBnd:\t{none}\n");
    assert_eq!(said, expected);
    for made in ["own", "made", "made/file"] {
        let found = folder.path().join(made).metadata().expect(made);
        assert_eq!(
            (found.uid(), found.gid()),
            (owned.uid(), owned.gid()),
            "{made}"
        );
    }
    let own = std::fs::read_to_string(folder.path().join("own"));
    assert_eq!(own.expect("a file"), "new\n");
}

/// With a host directory, programs may run as a user who owns more of the container than nobody does.
pub(crate) async fn check_limited_places(engine: &Engine, config: SessionConfig, owner: u32) {
    let folder = private(owner);
    let config = SessionConfig {
        workspace: Some(folder.path().to_owned()),
        ..config
    };
    let script = "for place in / /dev /etc /run /var/tmp /sys/fs/cgroup /.brig; do
           touch $place/made 2>/dev/null && echo \"$place can be written\"; done
         for place in /workspace /tmp /dev/shm \"$HOME\"; do touch $place/made || echo \"not $place\"; done
         for device in null zero full tty random; do ( : >>/dev/$device ) 2>/dev/null || echo $device; done
         dd if=/dev/zero of=/dev/null count=1 2>/dev/null && echo all";
    let said = said(engine, config, script).await;
    // There is no terminal.
    assert_eq!(said, "tty\nall\n");
}

#[tokio::test]
async fn only_what_is_limited_can_be_written() {
    let Some(engine) = Engine::find("writable places in containers") else {
        return;
    };
    for runtime in ["runc", "crun"] {
        check_limited_places(&engine, engine.config(runtime), ORDINARY).await;
    }
}

#[tokio::test]
async fn a_private_directory_is_used_by_its_owner() {
    let Some(engine) = Engine::find("private directories in containers") else {
        return;
    };
    for runtime in ["runc", "crun"] {
        check_workspace(&engine, engine.config(runtime), ORDINARY).await;
    }
}

#[tokio::test]
async fn on_gvisor_too() {
    let Some(engine) = Engine::with("gvisor", "private directories on gVisor") else {
        return;
    };
    let mut config = engine.config("gvisor");
    config.waive.insert(brig_sandbox::Control::Mounts);
    check_workspace(&engine, config, ORDINARY).await;
}

#[tokio::test]
async fn what_is_of_others_in_it_stays_theirs() {
    let Some(engine) = Engine::find("files of others in containers") else {
        return;
    };
    if !is_root() {
        brig_testing::skip(
            "files of others in containers",
            "only root can give files away",
        );
        return;
    }
    let folder = private(ORDINARY);
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "old\n").expect("a file");
    std::fs::set_permissions(&foreign, PermissionsExt::from_mode(0o600)).expect("chmod");
    chown(&foreign, Some(OTHER), Some(OTHER)).expect("chown");
    let other = private(OTHER);
    let mut config = config(&engine, folder.path());
    config.mounts.push(MountSpec {
        source: other.path().into(),
        target: "/other".into(),
        writable: false,
    });
    let script = "id -u; cat foreign; echo new > foreign; ls /other; ls -d /other";
    let said = said(&engine, config, script).await;
    assert!(said.starts_with(&format!("{ORDINARY}\n")), "{said}");
    assert_eq!(
        said.to_lowercase().matches("permission denied").count(),
        3,
        "{said}"
    );
    assert!(said.ends_with("/other\n"), "{said}");
    let kept = std::fs::read_to_string(&foreign).expect("the file");
    assert_eq!(kept, "old\n");
}

/// A file of root with the setuid bit in a directory that is mounted gives nothing.
#[tokio::test]
async fn root_owned_programs_give_nothing() {
    let Some(engine) = Engine::find("setuid programs in host directories") else {
        return;
    };
    if !is_root() {
        brig_testing::skip(
            "setuid programs in host directories",
            "only root can make them",
        );
        return;
    }
    let folder = private(ORDINARY);
    let program = folder.path().join("id");
    std::fs::copy("/usr/bin/id", &program).expect("a copy");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("chmod");
    let outside = std::process::Command::new("setpriv")
        .args(["--reuid=4001", "--clear-groups", "--"])
        .arg(&program)
        .arg("-u")
        .output()
        .expect("setpriv");
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert_eq!(outside, "0\n", "outside it gives the id of root");
    let said = said(&engine, config(&engine, folder.path()), "./id -u").await;
    assert_eq!(said, format!("{ORDINARY}\n"));
}

#[tokio::test]
async fn a_container_never_runs_as_root_for_a_directory() {
    let Some(engine) = Engine::find("directories of root in containers") else {
        return;
    };
    if !is_root() {
        brig_testing::skip("directories of root in containers", "started by a user");
        return;
    }
    let folder = private(0);
    let sandbox = Sandbox::builder(engine.backend().await)
        .build()
        .expect("a sandbox");
    let agent = "ids".parse().expect("an agent");
    let refused = sandbox
        .run_once(
            &agent,
            config(&engine, folder.path()),
            Request::command(["true"]),
        )
        .await;
    let refused = refused.expect_err("it belongs to root");
    assert_eq!(refused.code(), "input.mount");
    assert!(refused.to_string().contains("native backend"), "{refused}");
    // Where others may write, nobody does.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
    let said = said(&engine, config(&engine, folder.path()), "id -u; touch made").await;
    assert_eq!(said, "65534\n");
    let made = folder.path().join("made").metadata().expect("a file");
    assert_eq!(made.uid(), 65534);
}

/// Without a host directory there is no reason to be anybody.
#[tokio::test]
async fn without_a_directory_it_is_nobody() {
    let Some(engine) = Engine::find("the user of containers") else {
        return;
    };
    let config = with_option(engine.config("runc"), "image", engine.image.clone());
    assert_eq!(
        said(&engine, config, "id -u; id -g").await,
        "65534\n65534\n"
    );
}
