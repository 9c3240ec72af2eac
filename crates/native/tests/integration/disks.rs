//! What a sandbox can have written to the disks of the host.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::config::MountSpec;
use brig_sandbox::{AgentId, Request, Sandbox, SessionConfig};

/// Prints whether some of a file has no place on the disk yet: its file system was not synced.
const UNWRITTEN: &str = "
import fcntl, struct, sys
FIEMAP, DELALLOC, COUNT = 0xC020660B, 0x4, 64
with open(sys.argv[1]) as file:
    found = bytearray(struct.pack('QQIIII', 0, 2**64 - 1, 0, 0, COUNT, 0) + bytes(56 * COUNT))
    fcntl.ioctl(file, FIEMAP, found)
extents = struct.unpack_from('I', found, 20)[0]
flags = [struct.unpack_from('I', found, 32 + 56 * at + 40)[0] for at in range(extents)]
print(any(flag & DELALLOC for flag in flags))
";

/// The machine writes files when it likes. One that is left alone once was not synced.
const TRIES: usize = 5;

fn is_unwritten(file: &Path) -> bool {
    let told = Command::new("python3")
        .args(["-c", UNWRITTEN])
        .arg(file)
        .output();
    told.unwrap().stdout == b"True\n"
}

/// A new file that only the memory of the machine has.
fn make_unwritten(folder: &Path) -> bool {
    let file = folder.join("file");
    let _ = std::fs::remove_file(&file);
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    is_unwritten(&file)
}

const FILE_SYSTEMS: &str = "sync && sync -f /mnt/data && sync -f /mnt/data/file && sync -f /usr";
const FILES: &str = "sync /mnt/data/file && sync -d /mnt/data/file && sync /mnt/data /usr/bin/env";

async fn sync_inside(how: &str, folder: &Path, writable: bool) {
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "disks".parse().unwrap();
    let config = SessionConfig {
        mounts: vec![MountSpec {
            source: folder.to_owned(),
            target: "/mnt/data".into(),
            writable,
        }],
        ..SessionConfig::default()
    };
    let script = format!("{how} && echo done");
    let request = Request::command(["sh", "-c", &script]);
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let outcome = report.outcome;
    assert_eq!(outcome.stdout.bytes, b"done\n", "{outcome:?}");
}

#[tokio::test]
async fn a_sync_inside_writes_only_folders_that_are_writable() {
    only_writable_folders_are_written(FILE_SYSTEMS, &["-f"]).await;
}

#[tokio::test]
async fn a_file_that_is_only_read_is_not_written_to_the_disk() {
    only_writable_folders_are_written(FILES, &[]).await;
}

async fn only_writable_folders_are_written(inside: &str, outside: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    if !(0..TRIES).any(|_| make_unwritten(folder.path())) {
        brig_testing::skip(
            "syncs inside",
            "the file system of the tests does not tell what is not written yet",
        );
        return;
    }
    // Control: outside, the same call has the file written.
    let outside = Command::new("sync").args(outside).arg(&file).status();
    assert!(outside.unwrap().success());
    assert!(!is_unwritten(&file));

    let mut left_alone = false;
    for _ in 0..TRIES {
        if make_unwritten(folder.path()) {
            sync_inside(inside, folder.path(), false).await;
            left_alone |= is_unwritten(&file);
        }
        if left_alone {
            break;
        }
    }
    assert!(left_alone, "a read-only mount was synced");

    make_unwritten(folder.path());
    sync_inside(inside, folder.path(), true).await;
    assert!(!is_unwritten(&file), "a writable mount was not synced");
}

/// What a program is told does not depend on who does it.
#[tokio::test]
async fn a_sync_fails_as_it_does_outside() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import errno, os
reader, writer = os.pipe()
for file in writer, 1000:
    try:
        os.fsync(file)
    except OSError as error:
        print(errno.errorcode[error.errno])
own = os.open('/tmp/own', os.O_RDWR | os.O_CREAT)
os.fsync(own)
os.fdatasync(own)
";
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "disks".parse().unwrap();
    let config = SessionConfig {
        mounts: vec![MountSpec {
            source: folder.path().to_owned(),
            target: "/mnt/data".into(),
            writable: true,
        }],
        ..SessionConfig::default()
    };
    let request = Request::command(["python3", "-c", script]);
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let outcome = report.outcome;
    assert_eq!(outcome.stdout.bytes, b"EINVAL\nEBADF\n", "{outcome:?}");
    assert_eq!(outcome.exit_code, 0, "{outcome:?}");
}
