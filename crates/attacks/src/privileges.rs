//! Ways to become more than one is (attacks 16 and 17).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use brig_sandbox::SessionConfig;
use brig_sandbox::request::TerminalSize;
use serde_json::{Value, json};

use crate::fence::Fence;
use crate::probe::not_permitted_here;
use crate::target::{AttackTarget, attempts, mount, request};
use crate::{host, probe};

#[macro_export]
macro_rules! privileges {
    ($target:path) => {
        $crate::attacks!($target, privileges:
            setuid_programs_give_nothing,
            no_set_id_program_is_left_on_the_host,
            the_terminal_takes_no_input_from_the_code,
            no_more_of_the_machine_can_be_had,
            a_crash_is_not_handed_to_the_host,
        );
    };
}

/// Attack 16: programs of the system, and our own in a folder that is mounted.
pub async fn setuid_programs_give_nothing(target: &AttackTarget) {
    let scratch = host::scratch();
    let mut programs = serde_json::Map::new();
    programs.insert("su of the system".into(), json!(["/usr/bin/su"]));
    if host::is_root() {
        let (owned, capable) = (scratch.path().join("owned"), scratch.path().join("capable"));
        fs::copy("/bin/sleep", &owned).unwrap();
        fs::set_permissions(&owned, fs::Permissions::from_mode(0o4755)).unwrap();
        fs::copy("/bin/sleep", &capable).unwrap();
        let set = Command::new("setcap")
            .arg("cap_sys_admin,cap_net_admin=ep")
            .arg(&capable)
            .status();
        programs.insert("setuid in a mounted folder".into(), json!([owned, "2"]));
        if set.is_ok_and(|status| status.success()) {
            programs.insert(
                "capabilities in a mounted folder".into(),
                json!([capable, "2"]),
            );
        } else {
            host::skip("file capabilities in a mounted folder: setcap does not work here");
        }
    } else {
        host::skip(
            "setuid and file capabilities in a mounted folder: only root can make such files",
        );
    }
    let control = Fence::ordinary_user().run(&probe!("setuid"), &json!({"programs": programs}));

    let inside: Value = programs
        .iter()
        .map(|(name, words)| {
            let text = words
                .to_string()
                .replace(&scratch.path().display().to_string(), "/mnt/data");
            (name.clone(), serde_json::from_str::<Value>(&text).unwrap())
        })
        .collect();
    let config = mount(scratch.path(), "/mnt/data", false);
    let inside = target
        .run_with(config, &probe!("setuid"), &json!({"programs": inside}))
        .await;
    let fenced = Fence::namespaces()
        .run(&probe!("setuid"), &json!({"programs": {}}))
        .whole();
    inside.assert_held_except(&control.whole().or(&fenced), |attempt| {
        attempt
            .attempt
            .starts_with("Cap")
            .then(|| "nobody has any by default".into())
    });
}

/// Attack 16, the other way round: a file that the code leaves in a host directory would give
/// its owner's rights to whoever runs it there.
pub async fn no_set_id_program_is_left_on_the_host(target: &AttackTarget) {
    let (outside, mounted, workspace) =
        (host::scratch(), host::open_scratch(), host::open_scratch());
    let control = Fence::plain().run(&probe!("setid"), &json!({"folder": outside.path()}));
    let control = control.whole();
    let config = SessionConfig {
        workspace: Some(workspace.path().into()),
        ..mount(mounted.path(), "/mnt/data", true)
    };
    for (inside, folder) in [("/mnt/data", &mounted), ("/workspace", &workspace)] {
        let args = json!({"folder": inside});
        let attempts = target
            .run_with(config.clone(), &probe!("setid"), &args)
            .await;
        attempts.assert_held_except(&control, |attempt| {
            (attempt.errno.as_deref() == Some("ENOSYS"))
                .then(|| "this kernel does not have it".into())
        });
        for entry in fs::read_dir(folder.path()).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o6000, 0, "{} has {mode:o}", entry.path().display());
        }
    }
}

/// Attack 17: the part that is the sandbox's own.
pub async fn the_terminal_takes_no_input_from_the_code(target: &AttackTarget) {
    let mut control = Fence::plain()
        .run(&probe!("terminal"), &json!({"own": true}))
        .whole();
    assert!(control.ok("is a terminal"));
    let mut asked = request(&probe!("terminal"), &json!({}));
    asked.terminal = Some(TerminalSize {
        rows: 24,
        columns: 80,
    });
    let session = target.session(SessionConfig::default()).await;
    let report = session.start(asked).await.unwrap().wait().await.unwrap();
    session.destroy().await.unwrap();
    let mut inside = attempts(&report).whole();
    assert!(
        inside.ok("is a terminal"),
        "it was given a terminal: {inside:#?}"
    );
    control.forget("is a terminal");
    inside.forget("is a terminal");
    inside.assert_held_except(&control, |attempt| match attempt.errno.as_deref() {
        Some("EIO") => Some("this kernel has TIOCSTI switched off".into()),
        _ => not_permitted_here(attempt),
    });
}

/// Priorities, real-time classes and limits.
pub async fn no_more_of_the_machine_can_be_had(target: &AttackTarget) {
    let mut inside = target.run(&probe!("scheduling"), &json!({})).await;
    if target.own_kernel {
        // These are numbers that only the sandbox's own kernel looks at.
        inside.forget("higher priority");
        inside.forget("never be chosen by the out-of-memory killer");
    }
    if !host::is_root() {
        inside.assert_all_failed();
        return host::skip("control: outside the sandbox, too, only root can have more");
    }
    let control = Fence::plain()
        .run(&probe!("scheduling"), &json!({}))
        .whole();
    inside.assert_held_except(&control, |attempt| match attempt.errno.as_deref() {
        Some("EALREADY") => Some("it is unlimited outside".into()),
        Some("ValueError" | "EPERM" | "EACCES") => {
            Some("the tests themselves may not do it".into())
        }
        _ => None,
    });
}

/// The host's handler of core dumps runs as root and outside: it is not for strangers' crashes.
pub async fn a_crash_is_not_handed_to_the_host(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let args = json!({"folder": scratch.path(), "unlimited": true});
    let control = Fence::plain().run(&probe!("crash"), &args).whole();
    let args = json!({"folder": "/workspace", "unlimited": true});
    let inside = target.run(&probe!("crash"), &args).await;
    inside.assert_held_except(&control, |attempt| {
        (attempt.attempt == "dumped").then(|| "the tests themselves may dump no core".into())
    });
}
