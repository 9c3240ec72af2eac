//! Mounts and namespaces (attacks 12 and 15).

use serde_json::json;

use crate::fence::Fence;
use crate::probe::not_permitted_here;
use crate::target::AttackTarget;
use crate::{host, probe};

#[macro_export]
macro_rules! namespaces {
    ($target:path) => {
        $crate::attacks!($target, namespaces:
            nothing_can_be_mounted,
            no_namespace_can_be_made_or_entered,
        );
    };
}

/// Attack 12.
pub async fn nothing_can_be_mounted(target: &AttackTarget) {
    let scratch = host::open_scratch();
    let control = Fence::namespaces()
        .run(&probe!("mounts"), &json!({"folder": scratch.path()}))
        .whole();
    let inside = target
        .run(&probe!("mounts"), &json!({"folder": "/tmp"}))
        .await;
    inside.assert_held_except(&control, not_permitted_here);
    for attempt in inside.iter() {
        let code = attempt.errno.as_deref().unwrap_or_default();
        assert!(
            ["EPERM", "ENOSYS", "SIGSYS"].contains(&code),
            "refused, not failed: {attempt:?}"
        );
    }
}

/// Attack 15.
pub async fn no_namespace_can_be_made_or_entered(target: &AttackTarget) {
    let control = Fence::namespaces()
        .run(&probe!("namespaces"), &json!({}))
        .whole();
    let inside = target.run(&probe!("namespaces"), &json!({})).await;
    inside.assert_held_except(&control, not_permitted_here);
}
