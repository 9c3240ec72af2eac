//! The attacks on containers of crun, where it is crun and not the engine that holds them off. The rest is tried with
//! runc.

fn target() -> Option<brig_attacks::AttackTarget> {
    crate::docker::target("crun")
}

mod guest {
    brig_attacks::guest!(super::target);
}
mod kernel {
    brig_attacks::kernel!(super::target);
}
mod memory {
    brig_attacks::attacks!(super::target, memory:
        memory_beyond_the_cap_ends_the_tree,
    );
}
mod namespaces {
    brig_attacks::namespaces!(super::target);
}
mod privileges {
    brig_attacks::privileges!(super::target);
}
mod readonly {
    brig_attacks::attacks!(super::target, readonly:
        a_read_only_mount_cannot_be_changed,
        the_root_cannot_be_written,
        kernel_settings_cannot_be_written,
    );
}
