//! Folders of the host that root shares with a sandbox: whose their files are, inside and outside.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

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
    let stderr = report.outcome.unwrap().stderr.bytes;
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
