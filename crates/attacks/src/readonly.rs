//! What must not be written (attacks 8 and 13).

use std::fs::File;
use std::io::{Read, Write};

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Limits, SessionConfig};
use rustix::fs::{CWD, FileType, Mode, OFlags, chmod, mknodat, open};
use serde_json::json;

use crate::fence::Fence;
use crate::target::{AttackTarget, mount, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! readonly {
    ($target:path) => {
        $crate::attacks!($target, readonly:
            a_read_only_mount_cannot_be_changed,
            the_root_cannot_be_written,
            kernel_settings_cannot_be_written,
            a_fifo_in_a_read_only_mount_is_out_of_reach,
            shared_memory_is_private_and_counted,
        );
    };
}

/// Attack 8: the same folder, the same attempts, first writable and then not.
pub async fn a_read_only_mount_cannot_be_changed(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let writable = mount(scratch.path(), "/mnt/data", true);
    let prepare = json!({"folder": "/mnt/data", "prepare": true});
    let control = target
        .run_with(writable.clone(), &probe!("readonly"), &prepare)
        .await;

    let fresh = host::open_scratch();
    let config = |on| mount(fresh.path(), "/mnt/data", on);
    // The files must be there for the attempts, made by the same user.
    let made = "cd /mnt/data && for f in write truncate unlink chmod utime xattr reopen fallocate \
                rename-a rename-b exchange-a exchange-b link-a link-b; do echo 0123456789 > $f; done; mkdir rmdir";
    let session = target.session(config(true)).await;
    let report = session
        .run(vec!["sh".into(), "-c".into(), made.into()])
        .await
        .unwrap();
    assert!(report.outcome.success());
    session.destroy().await.unwrap();
    let inside = target
        .run_with(
            config(false),
            &probe!("readonly"),
            &json!({"folder": "/mnt/data"}),
        )
        .await;
    inside.assert_held_except(&control, |attempt| target.lacks(attempt));
}

/// Attack 13.
pub async fn the_root_cannot_be_written(target: &AttackTarget) {
    let scratch = host::scratch();
    let near = json!({"roots": [scratch.path()]});
    Fence::plain()
        .run(&probe!("writable"), &near)
        .whole()
        .assert_all_worked();

    let inside = target
        .run(&probe!("writable"), &json!({"roots": ["/"]}))
        .await;
    let found = inside.get("write somewhere");
    let places: Vec<&str> = found.value["places"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|v| v.as_str())
        .collect();
    for wanted in ["/workspace", "/tmp", "/dev/shm"] {
        assert!(
            places.contains(&wanted),
            "{wanted} should be writable: {places:?}"
        );
    }
    let strange: Vec<&&str> = places
        .iter()
        .filter(|place| !["/workspace", "/tmp", "/var/tmp", "/dev/shm"].contains(place))
        // The guest's own, where there is no Landlock: as small, and as much of the sandbox.
        .filter(|place| !(target.own_kernel && place.starts_with("/run/brig")))
        .collect();
    assert!(
        strange.is_empty(),
        "writable outside of workspace and tmp: {strange:?}"
    );
}

/// Settings of the kernel, the machine and the cgroups; `core_pattern` and `release_agent` are
/// the classics.
pub async fn kernel_settings_cannot_be_written(target: &AttackTarget) {
    let secrets = [
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/sysrq-trigger",
        "/proc/kmsg",
        "/sys/firmware/acpi/tables/DSDT",
    ];
    let here: Vec<&str> = secrets
        .into_iter()
        .filter(|path| rustix::fs::access(*path, rustix::fs::Access::EXISTS).is_ok())
        .collect();
    let args = json!({"secrets": here});
    let control = Fence::namespaces()
        .run(&probe!("settings"), &json!({"secrets": []}))
        .whole();
    assert!(
        control.ok("/proc/sys"),
        "the root of a namespace may change some: {control:#?}"
    );
    target
        .run(&probe!("settings"), &args)
        .await
        .assert_all_failed();
}

/// A read-only mount does not keep a program from writing to a FIFO, nor from taking what is in it. Where the root is
/// writable, Landlock does not either.
pub async fn a_fifo_in_a_read_only_mount_is_out_of_reach(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let path = scratch.path().join("fifo");
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
    chmod(&path, mode).unwrap();
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut held = File::from(open(&path, flags, Mode::empty()).unwrap());
    let mut left = [0; 256];
    held.write_all(b"host").unwrap();
    let control = Fence::plain()
        .run(&probe!("fifo"), &json!({"fifo": path}))
        .whole();
    while held.read(&mut left).is_ok_and(|count| count > 0) {}
    for read_only_root in [true, false] {
        held.write_all(b"host").unwrap();
        let config = SessionConfig {
            read_only_root,
            ..mount(scratch.path(), "/mnt/data", false)
        };
        let inside = target
            .run_with(config, &probe!("fifo"), &json!({"fifo": "/mnt/data/fifo"}))
            .await;
        inside.assert_held(&control);
        let count = held.read(&mut left).unwrap();
        assert_eq!(&left[..count], b"host");
    }
}

/// Attack 13: `/dev/shm` takes its bytes from the same allowance as every other place.
pub async fn shared_memory_is_private_and_counted(target: &AttackTarget) {
    let name = host::marker();
    let host_file = std::path::Path::new("/dev/shm").join(&name);
    std::fs::write(&host_file, "host").unwrap();
    let limits = Limits {
        disk_bytes: Limit::asked(32 * MIB),
        ..Limits::default()
    };
    let session = target
        .session(SessionConfig {
            limits,
            ..SessionConfig::default()
        })
        .await;
    let look = json!({"targets": [{"name": "host", "path": host_file, "text": "host"}]});
    Fence::plain()
        .run(&probe!("read"), &look)
        .whole()
        .assert_all_worked();
    run_in(&session, &probe!("read"), &look)
        .await
        .assert_all_failed();
    std::fs::remove_file(&host_file).unwrap();

    let fill =
        |folder: &str, bytes: u64| json!({"folder": folder, "bytes": bytes, "way": "written"});
    run_in(&session, &probe!("fill"), &fill("/dev/shm", 20 * MIB))
        .await
        .assert_all_worked();
    assert!(!host_file.exists());
    let elsewhere = run_in(&session, &probe!("fill"), &fill("/workspace", 20 * MIB)).await;
    assert_eq!(
        elsewhere.get("written").errno.as_deref(),
        Some("ENOSPC"),
        "counted together"
    );
    session.destroy().await.unwrap();
}
