use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use brig_sandbox::config::MountSpec;
use brig_sandbox::{Control, Error, Session, SessionConfig};

use super::fixture::{Done, Fixture, Stop, agent, check, check_eq, run, sh, skip, text};

fn mounting(fixture: &Fixture, source: &Path, target: &str, writable: bool) -> SessionConfig {
    let spec = MountSpec {
        source: source.into(),
        target: target.into(),
        writable,
    };
    SessionConfig {
        mounts: vec![spec],
        ..fixture.config()
    }
}

/// Where the backend says that it can't let this folder be written, there is nothing to try.
async fn writing(fixture: &Fixture, config: SessionConfig) -> Done<Session> {
    match fixture.session_with(config).await {
        Err(Stop::Failed(problem)) if problem.contains("does not support idmapped mounts") => {
            skip(problem)
        }
        session => session,
    }
}

pub(crate) async fn a_folder_is_seen_and_cannot_be_written(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let folder = fixture.host_folder("data")?;
    fs::write(folder.join("file"), "content")?;
    for target in [
        "/data",
        "/workspace/data",
        "/home/me/data",
        "/tmp/data",
        "/var/tmp/a/data",
        "/var/tmp",
    ] {
        let session = fixture
            .session_with(mounting(&fixture, &folder, target, false))
            .await?;
        check_eq!(
            text(&session, &format!("cat {target}/file")).await?,
            "content"
        );
        for script in [
            "echo x > new",
            "echo x > file",
            "rm file",
            "chmod 777 file",
            "mkdir new",
        ] {
            let script = format!("cd {target} && {script}");
            let outcome = run(&session, sh(&script)).await?.outcome;
            check!(!outcome.success(), "`{script}` succeeded");
        }
    }
    check_eq!(fs::read_to_string(folder.join("file"))?, "content");
    Ok(())
}

pub(crate) async fn a_writable_folder_can_be_written(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let folder = fixture.host_folder("data")?;
    let session = writing(&fixture, mounting(&fixture, &folder, "/data", true)).await?;
    text(&session, "echo inside > /data/new; mkdir /data/folder").await?;
    check_eq!(fs::read_to_string(folder.join("new"))?, "inside\n");
    fs::write(folder.join("later"), "outside")?;
    check_eq!(text(&session, "cat /data/later").await?, "outside");
    Ok(())
}

pub(crate) async fn a_file_can_be_mounted(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let file = fixture.host_folder("data")?.join("file");
    fs::write(&file, "content")?;
    let session = fixture
        .session_with(mounting(&fixture, &file, "/data/config", false))
        .await?;
    check_eq!(
        text(&session, "cat /data/config; ls /data").await?,
        "contentconfig\n"
    );
    Ok(())
}

pub(crate) async fn a_folder_of_the_host_can_be_the_workspace(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let folder = fixture.host_folder("project")?;
    fs::write(folder.join("file"), "content")?;
    let config = SessionConfig {
        workspace: Some(folder.clone()),
        ..fixture.config()
    };
    let session = writing(&fixture, config).await?;
    check_eq!(
        text(&session, "pwd; cat file; echo made > new").await?,
        "/workspace\ncontent"
    );
    check_eq!(fs::read_to_string(folder.join("new"))?, "made\n");
    session.upload("uploaded", 0o644, &b"x"[..]).await?;
    check_eq!(fs::read_to_string(folder.join("uploaded"))?, "x");
    session.destroy().await?;
    check!(
        folder.join("file").exists(),
        "destroying the session took the folder with it"
    );
    Ok(())
}

pub(crate) async fn what_is_protected_is_refused(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let sandbox = fixture.process()?;
    let folder = fixture.host_folder("data")?;
    let secret = fixture.host_folder("somebody/.ssh")?;
    let socket = folder.join("docker.sock");
    let _listener = UnixListener::bind(&socket)?;
    let link = folder.join("innocent");
    std::os::unix::fs::symlink("/etc", &link)?;
    let state = fixture.state();
    let mut sources = vec![socket.as_path(), &link, &secret, &state];
    let paths = [
        "/",
        "/etc",
        "/etc/ssh",
        "/proc",
        "/proc/1",
        "/sys",
        "/dev",
        "/usr/bin",
        "/bin",
        "/root/.ssh",
        "/root",
        "/var/run",
        "/run",
        "/boot",
    ];
    sources.extend(
        paths
            .map(Path::new)
            .into_iter()
            .filter(|path| path.exists()),
    );
    for source in sources {
        for writable in [false, true] {
            let config = mounting(&fixture, source, "/data", writable);
            let refused = sandbox.create_session(&agent(), None, config).await;
            check!(
                matches!(refused, Err(Error::MountRefused { .. })),
                "{source:?}: {refused:?}"
            );
        }
    }
    for target in [
        "/",
        "/proc",
        "/usr/bin",
        "/etc/ld.so.preload",
        "/dev/null",
        "data",
        "/a/../etc",
    ] {
        let refused = sandbox
            .create_session(&agent(), None, mounting(&fixture, &folder, target, false))
            .await;
        check!(
            matches!(refused, Err(Error::MountRefused { .. })),
            "{target}: {refused:?}"
        );
    }
    let allowed = fixture.host_folder("ordinary")?;
    sandbox
        .create_session(&agent(), None, mounting(&fixture, &allowed, "/data", false))
        .await?;
    Ok(())
}

pub(crate) async fn a_secret_in_a_mounted_folder_is_hidden(fixture: Fixture) -> Done {
    fixture.needs(Control::Mounts).await?;
    let folder = fixture.host_folder("somebody")?;
    fs::write(fixture.host_folder("somebody/.ssh")?.join("id"), "secret")?;
    fs::write(folder.join("file"), "content")?;
    let config = mounting(&fixture, &folder, "/data", false);
    let session = fixture.session_with(config).await?;
    check_eq!(
        text(&session, "cat /data/file; ls -A /data/.ssh").await?,
        "content"
    );
    Ok(())
}
