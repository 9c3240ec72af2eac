//! Sessions whose files are copied in, as on kernels that can't stack layers.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Limit, Sandbox, Session, SessionConfig};

fn sandbox(state: &Path) -> Sandbox {
    let backend = Arc::new(NativeBackend::with_copied_layers());
    let built = Sandbox::builder(backend).state_dir(state).build();
    built.expect("sandbox")
}

fn agent() -> AgentId {
    "agent".parse().expect("name")
}

async fn shell(session: &Session, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let report = session.run(command).await.expect("report");
    let outcome = report.outcome;
    assert!(outcome.success(), "{script}: {outcome:?}");
    String::from_utf8(outcome.stdout.bytes).expect("text")
}

#[tokio::test]
async fn a_copy_keeps_links_times_modes_and_holes() {
    let folder = tempfile::tempdir().expect("folder");
    let sandbox = sandbox(folder.path());
    let created = sandbox
        .create_session(&agent(), None, SessionConfig::default())
        .await;
    let session = created.expect("session");
    let script = "mkdir -p d/empty; echo x > d/a; ln d/a other; chmod 751 d/a; ln -s nowhere link
        truncate -s 64M holes; printf x | dd of=holes bs=1 seek=9999999 conv=notrunc 2>/dev/null
        touch -d @1000000000.5 d/a holes d/empty d; chmod 711 d";
    shell(&session, script).await;
    let look = "test d/a -ef other && stat -c '%n %F %a %Y %h' d/a d d/empty holes
        test $(stat -c %b holes) -lt 100; md5sum < holes; readlink link";
    let before = shell(&session, look).await;
    assert!(
        before.contains("d/a regular file 751 1000000000 2"),
        "{before}"
    );
    for _ in 0..2 {
        session.close().await.expect("closed");
        assert_eq!(shell(&session, look).await, before);
    }
}

#[tokio::test]
async fn a_full_disk_can_be_opened_again_and_freed() {
    let folder = tempfile::tempdir().expect("folder");
    let sandbox = sandbox(folder.path());
    let mut config = SessionConfig::default();
    config.limits.disk_bytes = Limit::asked(16 << 20);
    let created = sandbox.create_session(&agent(), None, config).await;
    let session = created.expect("session");
    let fill = "i=0; while head -c 1000000 /dev/urandom > f$i 2>/dev/null; do i=$((i+1)); done
        while echo x > small$i 2>/dev/null; do i=$((i+1)); done; du -sk . | cut -f1";
    let first: u64 = shell(&session, fill).await.trim().parse().expect("number");
    assert!(first > 15 << 10, "control: it is full: {first}");
    for _ in 0..3 {
        session.close().await.expect("closed");
        let now: u64 = shell(&session, fill).await.trim().parse().expect("number");
        assert!(now <= 16 << 10, "{now} of {}", 16 << 10);
    }
    session.close().await.expect("closed");
    shell(&session, "rm -r *; head -c 8000000 /dev/zero > again").await;
}

#[tokio::test]
async fn what_did_not_change_is_not_written_again() {
    let folder = tempfile::tempdir().expect("folder");
    let sandbox = sandbox(folder.path());
    let created = sandbox
        .create_session(&agent(), None, SessionConfig::default())
        .await;
    let session = created.expect("session");
    let id = session.id().to_string();
    let head = folder.path().join("sessions/agent").join(id).join("head-0");
    let inode = |name: &str| head.join(name).metadata().expect("file").ino();
    shell(&session, "echo 1 > kept; echo 1 > changed").await;
    let kept = inode("kept");
    for round in 2..5 {
        let aside = folder.path().join("aside");
        let _ = std::fs::remove_file(&aside);
        std::fs::hard_link(head.join("changed"), &aside).expect("link");
        session.close().await.expect("closed");
        shell(&session, &format!("echo {round} > changed; cat kept")).await;
        assert_eq!(inode("kept"), kept);
        let before = aside.metadata().expect("file").ino();
        assert_ne!(inode("changed"), before, "control");
    }
}
