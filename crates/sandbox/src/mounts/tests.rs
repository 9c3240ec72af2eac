use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;
use crate::config::MountSpec;

fn mount(source: impl Into<PathBuf>, target: &str) -> SessionConfig {
    let spec = MountSpec {
        source: source.into(),
        target: target.into(),
        writable: true,
    };
    SessionConfig {
        mounts: vec![spec],
        ..SessionConfig::default()
    }
}

fn refused(source: impl Into<PathBuf>) -> bool {
    match check(&mount(source, "/data"), None) {
        Ok(_) => false,
        Err(Error::MountRefused { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_ordinary_folder_is_mounted_as_it_is() {
    let folder = tempfile::tempdir().expect("folder");
    let places = check(&mount(folder.path(), "/data/"), None).expect("allowed");
    let found = folder.path().metadata().expect("metadata");
    let expected = CheckedMount {
        source: folder.path().canonicalize().expect("path"),
        target: "/data".into(),
        writable: true,
        device: found.dev(),
        inode: found.ino(),
    };
    assert_eq!(places.mounts, [expected]);
}

#[test]
fn the_system_is_refused_with_everything_below() {
    for path in "/ /etc /etc/ssl /etc/passwd /proc /proc/1 /proc/self/root /sys /dev /dev/null /usr
         /usr/bin /usr/lib /bin /sbin /lib /run /var /var/lib /var/log /var/run /var/tmp /tmp /root /home"
        .split_whitespace()
        .filter(|path| Path::new(path).exists())
    {
        assert!(refused(path), "{path}");
    }
    let harmless = tempfile::tempdir_in("/var/tmp").expect("folder");
    assert!(
        !refused(harmless.path()),
        "control: a folder below /var that is one's own"
    );
}

#[test]
fn what_does_not_exist_is_refused() {
    assert!(refused("/no/such/folder"));
}

#[test]
fn a_link_is_judged_by_where_it_leads() {
    let folder = tempfile::tempdir().expect("folder");
    let link = folder.path().join("innocent");
    symlink("/etc", &link).expect("link");
    assert!(refused(&link));
    assert!(refused(link.join("../etc/ssl")));

    let harmless = folder.path().join("real");
    std::fs::create_dir(&harmless).expect("folder");
    let link = folder.path().join("link");
    symlink(&harmless, &link).expect("link");
    let places = check(&mount(&link, "/data"), None).expect("allowed");
    assert!(
        places.mounts[0].source.ends_with("real"),
        "the link itself is not kept"
    );
}

#[test]
fn secrets_are_refused_wherever_they_lie() {
    let folder = tempfile::tempdir().expect("folder");
    for secret in [
        ".ssh",
        ".aws",
        ".config/gcloud",
        ".docker",
        ".kube/cache",
        ".local/state/brig",
    ] {
        let path = folder.path().join("somebody").join(secret);
        std::fs::create_dir_all(&path).expect("folder");
        assert!(refused(&path), "{secret}");
    }
    assert!(
        refused(folder.path().join("somebody")),
        "it contains .ssh: it is a home"
    );
    let beside = folder.path().join("somebody/project/.config");
    std::fs::create_dir_all(&beside).expect("folder");
    assert!(!refused(&beside), "control: an innocent folder beside them");
    assert!(!refused(folder.path().join("somebody/project")));
}

#[test]
fn sockets_and_devices_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("docker.sock");
    let _listener = UnixListener::bind(&socket).expect("socket");
    assert!(refused(&socket));
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("file");
    assert!(!refused(&file), "control: a regular file");
}

#[test]
fn the_state_of_brig_is_out_of_reach() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("state");
    let below = state.join("sessions");
    let beside = folder.path().join("beside");
    for path in [&below, &beside] {
        std::fs::create_dir_all(path).expect("folder");
    }
    let judge = |path: &Path| check(&mount(path, "/data"), Some(&state)).is_ok();
    assert!(!judge(&state));
    assert!(!judge(&below));
    assert!(!judge(folder.path()));
    assert!(judge(&beside), "control");
}

#[test]
fn targets_that_belong_to_the_sandbox_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let judge = |target: &str| check(&mount(folder.path(), target), None).is_ok();
    for target in "/ // /proc /proc/self /sys/fs /dev /dev/shm /etc/passwd /usr/local /bin /lib64
         /run /run/brig /run/brig/x /workspace /workspace/ data ./data /data/../etc /data/.."
        .split_whitespace()
    {
        assert!(!judge(target), "{target}");
    }
    assert!(!judge(""));
    for target in [
        "/data",
        "/workspace/data",
        "/tmp/x",
        "/home/me",
        "/runner",
        "/data/./x",
    ] {
        assert!(judge(target), "{target}");
    }
}

#[test]
fn targets_do_not_overlap() {
    let folder = tempfile::tempdir().expect("folder");
    let judge = |a: &str, b: &str| {
        let mut config = mount(folder.path(), a);
        config.mounts.extend(mount(folder.path(), b).mounts);
        check(&config, None).is_ok()
    };
    assert!(!judge("/data", "/data"));
    assert!(!judge("/data", "/data/below"));
    assert!(!judge("/data/below", "/data"));
    assert!(judge("/data", "/data2"));
}

#[test]
fn the_workspace_goes_the_same_way() {
    let folder = tempfile::tempdir().expect("folder");
    let with = |path: &Path| {
        check(
            &SessionConfig {
                workspace: Some(path.into()),
                ..SessionConfig::default()
            },
            None,
        )
    };
    let places = with(folder.path()).expect("allowed");
    let workspace = places.workspace.expect("workspace");
    assert_eq!(workspace.target, Path::new("/workspace"));
    assert!(workspace.writable);
    assert!(with(Path::new("/etc")).is_err());
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("file");
    assert!(with(&file).is_err());
}

#[test]
fn a_root_file_system_may_lie_in_var_but_is_a_folder() {
    let with = |path: &str| {
        check(
            &SessionConfig {
                rootfs: Some(path.into()),
                ..SessionConfig::default()
            },
            None,
        )
    };
    assert!(with("/var/lib").is_ok());
    assert!(with("/").is_err());
    assert!(with("/proc").is_err());
    assert!(with("/etc/passwd").is_err());
}

#[test]
fn a_python_is_a_program_or_an_environment() {
    let with = |path: &Path| {
        check(
            &SessionConfig {
                python: Some(path.into()),
                ..SessionConfig::default()
            },
            None,
        )
    };
    let folder = tempfile::tempdir().expect("folder");
    assert!(with(folder.path()).is_err());
    std::fs::create_dir(folder.path().join("bin")).expect("folder");
    symlink("/bin/sh", folder.path().join("bin/python3")).expect("link");
    assert!(with(folder.path()).is_ok());
    let python = with(&folder.path().join("bin/python3"))
        .expect("allowed")
        .python;
    assert_eq!(
        python,
        Some(folder.path().join("bin/python3")),
        "not the link's end"
    );
    assert!(with(Path::new("/no/python3")).is_err());
}
