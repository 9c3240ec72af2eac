//! Secrets that lie in what is mounted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use brig_sandbox::SessionConfig;
use serde_json::{Value, json};

use crate::target::{AttackTarget, mount_spec};
use crate::{host, probe};

#[macro_export]
macro_rules! secrets {
    ($target:path) => {
        $crate::attacks!($target, secrets:
            secrets_in_mounted_folders_are_hidden,
            a_secret_made_inside_does_no_harm,
            renaming_does_not_show_secrets_to_the_next_run,
            a_name_of_any_bytes_does_not_stop_the_next_run,
            a_flood_of_names_does_not_stop_the_next_run,
            a_link_made_inside_hides_nothing_for_good,
        );
    };
}

const FILES: [&str; 5] = [
    ".npmrc",
    ".netrc",
    "a/b/.ssh/id",
    "a/.docker/config.json",
    "home/.config/gh/hosts.yml",
];

/// Everybody may change everything, so that only the sandbox stands before it.
fn put(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    let mut at = file.as_path();
    while at != root {
        let mode = if at.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        at = at.parent().unwrap();
    }
}

fn prepared(text: &str) -> tempfile::TempDir {
    let scratch = host::open_scratch();
    for path in FILES {
        put(scratch.path(), path, text);
    }
    put(scratch.path(), "plain", "plain");
    scratch
}

fn args(root: &str, text: &str) -> Value {
    json!({"root": root, "text": text, "files": FILES})
}

/// As the workspace, read-only and writable. The control is a mount that shows them on purpose.
pub async fn secrets_in_mounted_folders_are_hidden(target: &AttackTarget) {
    let text = host::marker();
    let config = |scratch: &Path, way: &str| match way {
        "/workspace" => SessionConfig {
            workspace: Some(scratch.into()),
            ..SessionConfig::default()
        },
        _ => SessionConfig {
            mounts: vec![mount_spec(scratch, "/mnt/data", way == "writable")],
            ..SessionConfig::default()
        },
    };
    for way in ["/workspace", "read-only", "writable"] {
        let root = if way == "/workspace" {
            way
        } else {
            "/mnt/data"
        };
        let scratch = prepared(&text);
        let shown = SessionConfig {
            show_secrets: FILES.map(|path| scratch.path().join(path)).to_vec(),
            ..config(scratch.path(), way)
        };
        let control = target
            .run_with(shown, &probe!("secrets"), &args(root, &text))
            .await;
        // The control has moved them, where it could.
        let scratch = prepared(&text);
        let inside = target
            .run_with(
                config(scratch.path(), way),
                &probe!("secrets"),
                &args(root, &text),
            )
            .await;
        inside.assert_all_failed();
        let reading = control.iter().filter(|a| a.attempt.starts_with("read "));
        let read = reading.filter(|attempt| attempt.ok).count();
        assert_eq!(read, FILES.len(), "{control:#?}");
        assert!(control.ok("find by looking everywhere"));
        for path in FILES {
            let kept = scratch.path().join(path);
            let moved = kept.parent().is_none_or(|folder| !folder.exists());
            assert!(
                moved || fs::read_to_string(&kept).unwrap() == text,
                "{path} was changed through its cover"
            );
        }
    }
}

/// What a script prints in a fresh sandbox that has the directory as its workspace.
async fn run(target: &AttackTarget, workspace: &Path, script: &str) -> String {
    let config = SessionConfig {
        workspace: Some(workspace.into()),
        ..SessionConfig::default()
    };
    let session = target.session(config).await;
    let words = vec!["sh".into(), "-c".into(), script.into()];
    let outcome = session.run(words).await.unwrap().outcome;
    session.destroy().await.unwrap();
    let error = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
    assert!(outcome.success(), "{script}: {error}");
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

/// A run that leaves them behind in its workspace: the next one starts, and sees the rest.
pub async fn a_secret_made_inside_does_no_harm(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let run = async |script: &str| run(target, scratch.path(), script).await;
    let made = "mkdir .ssh d; echo x > .ssh/id; echo x > .npmrc; ln -s d .aws; ln -s . d/.kube; \
        ln -s /etc .gnupg; mkdir d/.docker; echo plain > d/plain; cat .ssh/id";
    assert_eq!(run(made).await, "x\n", "control: one's own, while it runs");
    assert_eq!(run("cat .npmrc; ls .ssh").await, "");
    // Again and again: what is hidden is hidden, and nothing fails.
    assert_eq!(run("ls -A d; mkdir e; echo done").await, "done\n");
    assert!(scratch.path().join("e").is_dir());
    assert!(scratch.path().join("d/plain").is_file());
}

/// What is a secret only because of names above it, or of links.
const BY_NAME: [&str; 4] = [
    "home/.config/gh/hosts.yml",
    "home/.cargo/credentials.toml",
    "home/.local/share/keyrings/login",
    "deep/er/keys/id",
];

/// Everything that could make the next run take them for something else.
const RENAMING: &str = "cd home; mv .config c; mv .cargo c2; mv .local/share .local/s; mv .local l; \
    cd ..; mv home h; rm -f .ssh second; mv .ssh s; mv second s2; mkdir new; mv -f new .ssh; \
    ln -sfn plain .ssh; mv deep/er deep/r; mv deep d; rmdir home/.config h/.config; true";

fn known_by_name(text: &str, with_link: bool) -> tempfile::TempDir {
    let scratch = host::open_scratch();
    let files = if with_link { 4 } else { 3 };
    for path in &BY_NAME[..files] {
        put(scratch.path(), path, text);
    }
    if with_link {
        symlink("second", scratch.path().join(".ssh")).unwrap();
        symlink("deep/er/keys", scratch.path().join("second")).unwrap();
    }
    put(scratch.path(), "plain", "plain");
    scratch
}

/// One run renames what it can; the next looks everywhere. The control does the same from outside.
pub async fn renaming_does_not_show_secrets_to_the_next_run(target: &AttackTarget) {
    let text = host::marker();
    // An engine can't keep a link in its place.
    let with_link = target.capabilities().pins_names;
    let look = format!("grep -rlF {text} . | wc -l; echo done > new-file; cat plain new-file");
    let scratch = known_by_name(&text, with_link);
    run(target, scratch.path(), RENAMING).await;
    let seen = run(target, scratch.path(), &look).await;
    assert_eq!(seen, "0\nplaindone\n");
    let scratch = known_by_name(&text, with_link);
    let moved = Command::new("sh")
        .args(["-c", RENAMING])
        .current_dir(scratch.path())
        .output();
    assert!(moved.unwrap().status.success());
    let seen = run(target, scratch.path(), &look).await;
    let found: usize = seen.lines().next().unwrap().trim().parse().unwrap();
    assert_eq!(found, if with_link { 4 } else { 3 }, "control: {seen}");
}

/// More names than can be hidden one by one.
pub async fn a_flood_of_names_does_not_stop_the_next_run(target: &AttackTarget) {
    let scratch = prepared("secret");
    let flood = "python3 -c \"import os\nfor n in range(4100):\n    os.makedirs(f'x/d{n}')\n    \
        open(f'x/d{n}/.npmrc', 'w').close()\nprint(len(os.listdir('x')))\"";
    assert_eq!(
        run(target, scratch.path(), flood).await,
        "4100\n",
        "control"
    );
    let look = "ls -A x; cat plain .npmrc; ls -A a/b/.ssh; echo done";
    assert_eq!(run(target, scratch.path(), look).await, "plaindone\n");
}

/// What is hidden is a mount, and its path is in a list of the kernel's that others read. An engine takes only paths
/// that are UTF-8, so in containers such a mount is refused.
pub async fn a_name_of_any_bytes_does_not_stop_the_next_run(target: &AttackTarget) {
    if target.backend.id().kind() != "native" {
        host::skip("names of any bytes: an engine takes only UTF-8");
        return;
    }
    let scratch = host::open_scratch();
    let made = r#"d=$(printf '\377\233 \n\\'); mkdir -p "$d/.ssh"; echo key > "$d/.ssh/key"; cat "$d/.ssh/key""#;
    let made = run(target, scratch.path(), made).await;
    assert_eq!(made, "key\n", "control");
    // The lock shows that the mounts can be told apart.
    let look = "cat */.ssh/key; flock . echo locked; echo done";
    let seen = run(target, scratch.path(), look).await;
    assert_eq!(seen, "locked\ndone\n");
}

/// A link that is called like a secret hides what it leads to, whoever made it, and as long as it is there.
pub async fn a_link_made_inside_hides_nothing_for_good(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let run = async |script: &str| run(target, scratch.path(), script).await;
    let made = "mkdir src; echo code > src/main; ln -s src .ssh; ln -s . .aws; cat .ssh/main";
    assert_eq!(run(made).await, "code\n", "control");
    assert_eq!(run("ls -A src; echo done").await, "done\n");
    fs::remove_file(scratch.path().join(".ssh")).unwrap();
    assert_eq!(run("cat src/main").await, "code\n");
}
