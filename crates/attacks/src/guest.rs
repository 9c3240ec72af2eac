//! Attacks on the process that holds the sandbox together.

use brig_sandbox::SessionConfig;
use serde_json::json;

use crate::fence::Fence;
use crate::target::{AttackTarget, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! guest {
    ($target:path) => {
        $crate::attacks!($target, guest:
            the_keeper_cannot_be_read_traced_or_stopped,
            killing_everybody_reaches_only_oneself,
        );
    };
}

pub async fn the_keeper_cannot_be_read_traced_or_stopped(target: &AttackTarget) {
    // The same attempts on a process that nobody protects.
    let control = Fence::processes()
        .run(&probe!("guest"), &json!({"victim": true}))
        .whole();
    let session = target.session(SessionConfig::default()).await;
    let mut inside = run_in(&session, &probe!("guest"), &json!({})).await;
    if target.own_kernel {
        // gVisor shows these of any process of the same user. See SECURITY.md.
        for shown in [
            "read environment",
            "read maps",
            "read auxv",
            "list descriptors",
            "open a descriptor",
        ] {
            inside.forget(shown);
        }
    }
    inside.assert_held(&control);
    let after = session
        .run(vec!["echo".into(), "alive".into()])
        .await
        .unwrap();
    assert_eq!(after.outcome.stdout.bytes, b"alive\n");
    session.destroy().await.unwrap();
}

/// `kill(-1)` from one execution must not reach another one, nor the session itself.
pub async fn killing_everybody_reaches_only_oneself(target: &AttackTarget) {
    let (outer, marker) = (host::marker(), host::marker());
    let control = Fence::processes()
        .run(&probe!("killall"), &json!({"marker": outer}))
        .whole();
    control.assert_all_worked();

    let session = target.session(SessionConfig::default()).await;
    let beside = session
        .start(brig_sandbox::Request::command([
            "sh",
            "-c",
            "sleep 2; echo beside",
        ]))
        .await
        .unwrap();
    let inside = run_in(&session, &probe!("killall"), &json!({"marker": marker})).await;
    inside.assert_all_worked();
    let outcome = beside.wait().await.unwrap().outcome;
    assert_eq!(
        outcome.stdout.bytes, b"beside\n",
        "the execution beside it goes on"
    );
    assert!(host::processes_named(&marker).is_empty());
    session.destroy().await.unwrap();
}
