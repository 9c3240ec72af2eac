//! What must not be written (attacks 8 and 13).

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Limits, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::ground::{Ground, mount, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! readonly {
    ($ground:path) => {
        $crate::attacks!($ground, readonly:
            a_read_only_mount_cannot_be_changed,
            the_root_cannot_be_written,
            kernel_settings_cannot_be_written,
            shared_memory_is_private_and_counted,
        );
    };
}

/// Attack 8: the same folder, the same attempts, first writable and then not.
pub async fn a_read_only_mount_cannot_be_changed(ground: &Ground) {
    let scratch = host::open_scratch();
    let writable = mount(scratch.path(), "/mnt/data", true);
    let prepare = json!({"folder": "/mnt/data", "prepare": true});
    let control = ground
        .run_with(writable.clone(), &probe!("readonly"), &prepare)
        .await;

    let fresh = host::open_scratch();
    let config = |on| mount(fresh.path(), "/mnt/data", on);
    // The files must be there for the attempts, made by the same user.
    let made = "cd /mnt/data && for f in write truncate unlink chmod utime xattr reopen fallocate \
                rename-a rename-b exchange-a exchange-b link-a link-b; do echo 0123456789 > $f; done; mkdir rmdir";
    let session = ground.session(config(true)).await;
    let report = session
        .run(vec!["sh".into(), "-c".into(), made.into()])
        .await
        .unwrap();
    assert!(report.outcome.unwrap().success());
    session.destroy().await.unwrap();
    let inside = ground
        .run_with(
            config(false),
            &probe!("readonly"),
            &json!({"folder": "/mnt/data"}),
        )
        .await;
    inside.assert_held_except(&control, |attempt| ground.lacks(attempt));
}

/// Attack 13.
pub async fn the_root_cannot_be_written(ground: &Ground) {
    let scratch = host::scratch();
    let near = json!({"roots": [scratch.path()]});
    Fence::plain()
        .run(&probe!("writable"), &near)
        .whole()
        .assert_all_worked();

    let inside = ground
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
        .filter(|place| !(ground.own_kernel && place.starts_with("/run/brig")))
        .collect();
    assert!(
        strange.is_empty(),
        "writable outside of workspace and tmp: {strange:?}"
    );
}

/// Settings of the kernel, the machine and the cgroups; `core_pattern` and `release_agent` are
/// the classics.
pub async fn kernel_settings_cannot_be_written(ground: &Ground) {
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
    ground
        .run(&probe!("settings"), &args)
        .await
        .assert_all_failed();
}

/// Attack 13: `/dev/shm` takes its bytes from the same allowance as every other place.
pub async fn shared_memory_is_private_and_counted(ground: &Ground) {
    let name = host::marker();
    let host_file = std::path::Path::new("/dev/shm").join(&name);
    std::fs::write(&host_file, "host").unwrap();
    let limits = Limits {
        disk_bytes: Limit::asked(32 * MIB),
        ..Limits::default()
    };
    let session = ground
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
