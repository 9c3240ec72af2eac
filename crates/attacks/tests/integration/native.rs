//! All attacks on the native backend.

use std::sync::Arc;

use brig_attacks::AttackTarget;

fn target() -> AttackTarget {
    AttackTarget::new(
        Arc::new(brig_native::NativeBackend::new()),
        env!("CARGO_BIN_EXE_owner"),
    )
}

mod commands {
    brig_attacks::commands!(super::target);
}
mod environment {
    brig_attacks::environment!(super::target);
}
mod filesystem {
    brig_attacks::filesystem!(super::target);
}
mod filetypes {
    brig_attacks::filetypes!(super::target);
}
mod guest {
    brig_attacks::guest!(super::target);
}
mod ipc {
    brig_attacks::ipc!(super::target);
}
mod kernel {
    brig_attacks::kernel!(super::target);
}
mod leftovers {
    brig_attacks::leftovers!(super::target);
}
mod limits {
    brig_attacks::limits!(super::target);
}
mod links {
    brig_attacks::links!(super::target);
}
mod memory {
    brig_attacks::memory!(super::target);
}
mod missing {
    brig_attacks::missing!(super::target);
}
mod names {
    brig_attacks::names!(super::target);
}
mod namespaces {
    brig_attacks::namespaces!(super::target);
}
mod output {
    brig_attacks::output!(super::target);
}
mod privileges {
    brig_attacks::privileges!(super::target);
}
mod processes {
    brig_attacks::processes!(super::target);
}
mod propagation {
    brig_attacks::propagation!(super::target);
}
mod readonly {
    brig_attacks::readonly!(super::target);
}
mod rootfs {
    brig_attacks::rootfs!(super::target);
}
mod saving {
    brig_attacks::saving!(super::target);
}
mod secrets {
    brig_attacks::secrets!(super::target);
}
#[cfg(target_arch = "x86_64")]
mod starts {
    brig_attacks::starts!(super::target);
}
mod stubborn {
    brig_attacks::stubborn!(super::target);
}
