//! Host directories that root shares with a sandbox: whose their files are, inside and outside.

use std::os::unix::fs::{MetadataExt, chown};
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Request, Sandbox, SessionConfig};

const OWNER: u32 = 4001;
const OTHER: u32 = 4002;

#[tokio::test]
async fn the_sandbox_can_do_what_the_owner_of_the_folder_can() {
    if !rustix::process::geteuid().is_root() {
        brig_testing::skip("owners in shared folders", "only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, user: u32, group: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, "old\n").unwrap();
        chown(&path, Some(user), Some(group)).unwrap();
        path
    };
    chown(folder.path(), Some(OWNER), Some(OWNER)).unwrap();
    let own = file("own", OWNER, OWNER);
    let group = file("group", OWNER, OTHER);
    let foreign = file("foreign", 0, 0);
    let removed = file("removed", 0, 0);

    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "owners".parse().unwrap();
    let config = SessionConfig {
        workspace: Some(folder.path().to_owned()),
        ..SessionConfig::default()
    };
    let script =
        "echo new > own; echo new > group; echo new > foreign; rm -f removed; echo new > made";
    let request = Request::command(["sh", "-c", script]);
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let stderr = report.outcome.stderr.bytes;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();

    let text = |path| std::fs::read_to_string(path).unwrap();
    assert_eq!(
        (text(&own), text(&group)),
        ("new\n".into(), "new\n".into()),
        "{stderr}"
    );
    assert_eq!(text(&foreign), "old\n");
    assert!(stderr.contains("foreign"), "{stderr}");
    assert!(!removed.exists(), "{stderr}");
    let made = folder.path().join("made").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (OWNER, OWNER));
    let kept = group.metadata().unwrap();
    assert_eq!((kept.uid(), kept.gid()), (OWNER, OTHER));
}

/// Nobody else has to be let in, and the sandbox is not root for it.
#[tokio::test]
async fn a_private_folder_of_root_stays_roots() {
    if !rustix::process::geteuid().is_root() {
        brig_testing::skip("a folder of root", "started by a user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "owners".parse().unwrap();
    let config = SessionConfig {
        workspace: Some(folder.path().to_owned()),
        ..SessionConfig::default()
    };
    let request = Request::command(["sh", "-c", "echo x > made; cat /proc/self/uid_map"]);
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let map = String::from_utf8_lossy(&report.outcome.stdout.bytes).into_owned();
    let outside = map.split_whitespace().nth(1).unwrap();
    assert_ne!(outside, "0", "{map}");
    let made = folder.path().join("made").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (0, 0));
}
