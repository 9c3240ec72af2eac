use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;
use crate::config::MountSpec;
use crate::plan::HiddenKind;

const HIDING: Hiding = Hiding {
    pins: true,
    most: 1000,
};

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
    match check(&mount(source, "/data"), &[], HIDING) {
        Ok(_) => false,
        Err(Error::MountRefused { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_ordinary_folder_is_mounted_as_it_is() {
    let folder = tempfile::tempdir().expect("folder");
    let places = check(&mount(folder.path(), "/data/"), &[], HIDING).expect("allowed");
    let found = folder.path().metadata().expect("metadata");
    let expected = CheckedMount {
        source: folder.path().canonicalize().expect("path"),
        target: "/data".into(),
        writable: true,
        device: found.dev(),
        inode: found.ino(),
        hidden: Vec::new(),
        pinned: Vec::new(),
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
    let places = check(&mount(&link, "/data"), &[], HIDING).expect("allowed");
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
        !refused(folder.path().join("somebody")),
        "what contains them is shown without them"
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
    let private = [Private::new(&state, "it is private")];
    let judge = |path: &Path| check(&mount(path, "/data"), &private, HIDING).is_ok();
    assert!(!judge(&state));
    assert!(!judge(&below));
    assert!(!judge(folder.path()));
    assert!(judge(&beside), "control");
}

#[test]
fn targets_that_belong_to_the_sandbox_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let judge = |target: &str| check(&mount(folder.path(), target), &[], HIDING).is_ok();
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
        check(&config, &[], HIDING).is_ok()
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
            &[],
            HIDING,
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
            &[],
            HIDING,
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
            &[],
            HIDING,
        )
    };
    let folder = tempfile::tempdir().expect("folder");
    assert!(with(folder.path()).is_err());
    std::fs::create_dir(folder.path().join("bin")).expect("folder");
    symlink("/bin/sh", folder.path().join("bin/python3")).expect("link");
    assert!(with(folder.path()).is_ok());
    let inside = folder.path().canonicalize().expect("path");
    std::fs::write(inside.join("pyvenv.cfg"), "home = /usr/bin\n").expect("file");
    let python = with(&folder.path().join("bin/python3"))
        .expect("allowed")
        .python
        .expect("a python");
    assert_eq!(
        python.program,
        inside.join("bin/python3"),
        "not the link's end"
    );
    assert_eq!(python.virtual_env.as_deref(), Some(inside.as_path()));
    let roots: Vec<_> = python.roots.iter().map(|root| &root.source).collect();
    assert_eq!(roots, [&inside]);
    // Where it is a link to /usr/bin, it does not lead to the root.
    std::fs::write(inside.join("pyvenv.cfg"), "home = /bin\n").expect("file");
    let merged = Path::new("/bin").is_symlink();
    assert_eq!(with(folder.path()).is_ok(), merged);
    assert!(with(Path::new("/no/python3")).is_err());
}

/// Somebody's own directory, with an interpreter in it or without.
fn private(with_python: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::create_dir_all(folder.path().join("bin")).expect("folder");
    std::fs::write(folder.path().join("diary"), "private").expect("file");
    std::fs::copy("/bin/sh", folder.path().join("bin/python3")).expect("program");
    if with_python {
        std::fs::create_dir_all(folder.path().join("lib/python3.11")).expect("folder");
        std::fs::write(folder.path().join("lib/python3.11/os.py"), "").expect("file");
    }
    folder
}

#[test]
fn what_lies_in_an_environment_does_not_decide_what_is_shown() {
    let with = |path: &Path| {
        let config = SessionConfig {
            python: Some(path.into()),
            ..SessionConfig::default()
        };
        check(&config, &[], HIDING)
    };
    for with_python in [false, true] {
        let private = private(with_python);
        let environment = tempfile::tempdir().expect("folder");
        let bin = environment.path().join("bin");
        std::fs::create_dir(&bin).expect("folder");
        // By the file that names it.
        symlink("/bin/sh", bin.join("python3")).expect("link");
        let config = environment.path().join("pyvenv.cfg");
        let home = private.path().join("bin");
        std::fs::write(&config, format!("home = {}\n", home.display())).expect("file");
        let error = with(environment.path()).expect_err("another's directory");
        assert_eq!(error.code(), "input.mount");
        assert!(
            error
                .to_string()
                .contains("not a known Python installation"),
            "{error}"
        );
        std::fs::write(&config, "home = /usr/bin\n").expect("file");
        assert!(with(environment.path()).is_ok(), "control");
        // By a link in place of the interpreter.
        std::fs::remove_file(&config).expect("remove");
        std::fs::remove_file(bin.join("python3")).expect("remove");
        symlink(home.join("python3"), bin.join("python3")).expect("link");
        let error = with(environment.path()).expect_err("another's directory");
        assert!(
            error
                .to_string()
                .contains("not a known Python installation"),
            "{error}"
        );
        assert!(with(&bin.join("python3")).is_err());
        // Control: who names it, has it.
        assert!(with(&home.join("python3")).is_ok());
        // By a link in place of the file that names it, which is another's file.
        std::fs::write(private.path().join("cfg"), "home = /usr/bin\n").expect("file");
        symlink(private.path().join("cfg"), &config).expect("link");
        assert!(with(environment.path()).is_err());
        // By a link in place of the directory.
        std::fs::remove_dir_all(&bin).expect("remove");
        symlink(&home, &bin).expect("link");
        assert!(with(&bin.join("python3")).is_err());
    }
}

#[test]
fn a_link_that_a_sandbox_may_have_made_leads_nowhere_else() {
    let (project, private) = (private(false), private(false));
    symlink(private.path(), project.path().join("out")).expect("link");
    assert!(refused(project.path().join("out")));
    assert!(refused(project.path().join("out/bin")));
    assert!(!refused(private.path()), "control: who names it, has it");
    symlink("bin", project.path().join("inner")).expect("link");
    assert!(!refused(project.path().join("inner")), "control");
    for config in [
        SessionConfig {
            workspace: Some(project.path().join("out")),
            ..SessionConfig::default()
        },
        SessionConfig {
            rootfs: Some(project.path().join("out")),
            ..SessionConfig::default()
        },
    ] {
        assert!(check(&config, &[], HIDING).is_err());
    }
}

/// What is hidden of a mount, by its path.
fn hidden(source: &Path, show: &[&Path]) -> Vec<String> {
    let config = SessionConfig {
        show_secrets: show.iter().map(|path| (*path).to_owned()).collect(),
        ..mount(source, "/data")
    };
    let places = check(&config, &[], HIDING).expect("allowed");
    // A link is covered together with what it leads to.
    let hidden = places.mounts[0].hidden.iter();
    let hidden = hidden.filter(|hidden| hidden.kind != HiddenKind::Link);
    let paths = hidden.map(|hidden| &hidden.path);
    paths.map(|path| path.display().to_string()).collect()
}

#[test]
fn secrets_in_what_is_mounted_are_found_wherever_they_lie() {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("path");
    let put = |path: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, "secret").expect("file");
    };
    for path in [
        ".npmrc",
        ".ssh/id",
        "a/b/.ssh/id",
        "a/b/c/.netrc",
        "home/.config/gh/hosts.yml",
        "home/.cargo/credentials.toml",
        "home/.docker/config.json",
        // Controls: no secrets by their names.
        "gh/hosts.yml",
        "credentials.toml",
        ".config/app/settings",
        "npmrc",
        ".ssh.md",
    ] {
        put(path);
    }
    let all = [
        ".npmrc",
        ".ssh",
        "a/b/.ssh",
        "a/b/c/.netrc",
        "home/.cargo/credentials.toml",
        "home/.config/gh",
        "home/.docker",
    ];
    assert_eq!(hidden(&root, &[]), all);
    // The part above may lie outside of what is mounted.
    assert_eq!(hidden(&root.join("home/.config"), &[]), ["gh"]);
    // What is named is shown, and what is below.
    let shown = root.join(".npmrc");
    assert_eq!(hidden(&root, &[&shown]), all[1..]);
    let shown = root.join("a");
    assert!(
        !hidden(&root, &[&shown])
            .iter()
            .any(|path| path.starts_with("a/"))
    );
    assert!(hidden(&root, &[&root]).is_empty());
    // Only one file of a directory that is a secret.
    put("home/.docker/other.json");
    let shown = root.join("home/.docker/config.json");
    let found = hidden(&root, &[&shown]);
    assert_eq!(&found[..6], &all[..6]);
    assert_eq!(&found[6..], ["home/.docker/other.json"]);
    // A secret can be mounted by who names it twice.
    let secret = root.join(".ssh");
    assert!(refused(&secret));
    let config = SessionConfig {
        show_secrets: vec![secret.clone()],
        ..mount(&secret, "/data")
    };
    assert!(check(&config, &[], HIDING).is_ok());
}

#[test]
fn links_and_closed_folders_hide_nothing_from_the_search() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("path");
    for path in [
        "keys",
        "closed/below",
        "deep",
        "open",
        "listed/below",
        "listed/keys",
    ] {
        std::fs::create_dir_all(root.join(path)).expect("folder");
    }
    symlink("keys", root.join(".ssh")).expect("link");
    symlink("..", root.join("open/up")).expect("link");
    symlink("/nowhere", root.join(".netrc")).expect("link");
    symlink(".", root.join(".gnupg")).expect("link");
    // Names can be seen where nothing can be looked at; what is called like a secret is.
    for path in ["listed/.netrc", "listed/plain", "behind/file", "plain/file"] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, "secret").expect("file");
    }
    symlink("behind/file", root.join(".npmrc")).expect("link");
    let chmod = |path: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(root.join(path), mode).expect("chmod");
    };
    let closed = [
        ("closed", 0),
        ("listed", 0o444),
        ("behind", 0o444),
        ("plain", 0o444),
    ];
    closed.iter().for_each(|(path, mode)| chmod(path, *mode));
    let found = hidden(&root, &[]);
    let itself = refused(root.join("listed"));
    closed.iter().for_each(|(path, _)| chmod(path, 0o755));
    if rustix::process::geteuid().is_root() {
        assert_eq!(found, ["behind/file", "keys", "listed/.netrc"]);
    } else {
        assert_eq!(found, ["behind", "closed", "keys", "listed"]);
        assert!(itself, "it can't be hidden from itself");
    }
    // Deeper than a path can say: made step by step, and hidden from where it is too long.
    let deep = std::fs::File::open(root.join("deep")).expect("open");
    let mut at = rustix::fd::OwnedFd::from(deep);
    let name = "d".repeat(200);
    for _ in 0..30 {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkdirat(&at, name.as_str(), mode).expect("mkdir");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        at =
            rustix::fs::openat(&at, name.as_str(), flags, rustix::fs::Mode::empty()).expect("open");
    }
    let found = hidden(&root.join("deep"), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].len() > 2500 && found[0].len() < 4000);
}

#[test]
fn a_link_above_a_secret_is_followed_to_it() {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("path");
    for path in [
        "home/config/gh/hosts.yml",
        "home/config/app/settings",
        "home/tools/credentials.toml",
        "home/tools/registry",
        "home/data/keyrings/login",
        "home/data/app",
        "home/.local/bin/tool",
        "home/boxes/auth.json",
        "home/boxes/other.json",
        "other/.config/settings",
    ] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, "secret").expect("file");
    }
    symlink("config", root.join("home/.config")).expect("link");
    symlink("tools", root.join("home/.cargo")).expect("link");
    symlink("../data", root.join("home/.local/share")).expect("link");
    symlink("../boxes", root.join("home/config/containers")).expect("link");
    // Controls: links of other names, and elsewhere.
    symlink("config", root.join("home/config.old")).expect("link");
    symlink("../home/data", root.join("other/share")).expect("link");
    symlink("/usr", root.join("other/.local")).expect("link");
    let all = [
        "home/boxes/auth.json",
        "home/config/gh",
        "home/data/keyrings",
        "home/tools/credentials.toml",
    ];
    assert_eq!(hidden(&root, &[]), all);
    // What is named is shown, and only that; a link that code may have made shows nothing.
    assert_eq!(
        hidden(&root, &[&root.join("home/config/gh")])[..2],
        [all[0], all[2]]
    );
    assert_eq!(hidden(&root, &[&root.join("home/.config/gh")]), all);
    std::fs::write(root.join("home/config/gh/other"), "secret").expect("file");
    symlink(".", root.join("home/config/gh/again")).expect("link");
    let shown = root.join("home/config/gh/hosts.yml");
    assert_eq!(
        hidden(&root, &[&shown])[..2],
        [all[0], "home/config/gh/other"]
    );
}

#[test]
fn an_interpreter_that_changes_places_with_a_link_shows_nothing_else() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (project, private) = (private(false), private(false));
    let private = private.path().canonicalize().expect("path");
    let bin = project.path().join("bin");
    symlink(private.join("bin/python3"), bin.join("link")).expect("link");
    let done = AtomicBool::new(false);
    let config = SessionConfig {
        python: Some(bin.join("python3")),
        ..SessionConfig::default()
    };
    let mut allowed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (bin.join("python3"), bin.join("link"));
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(cwd, &a, cwd, &b, exchange).expect("exchange");
            }
        });
        let mut shown = Vec::new();
        for _ in 0..500 {
            let places = check(&config, &[], HIDING).ok();
            let python = places.and_then(|places| places.python);
            allowed += usize::from(python.is_some());
            shown.extend(python.into_iter().flat_map(|python| python.roots));
        }
        done.store(true, Ordering::Relaxed);
        assert!(shown.iter().all(|root| !root.source.starts_with(&private)));
    });
    assert!(allowed > 0, "control");
}
