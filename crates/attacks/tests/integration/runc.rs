//! The attacks on containers of runc. What rests on a namespace for each execution, or on one disk
//! for all places, is different there by design, and so is what only a host's folder as root has.

fn target() -> Option<brig_attacks::AttackTarget> {
    crate::docker::target("runc")
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
mod links {
    brig_attacks::links!(super::target);
}
mod memory {
    // An engine can't have version 1 of control groups count what waits in TCP sockets.
    brig_attacks::attacks!(super::target, memory:
        memory_beyond_the_cap_ends_the_tree,
        a_sum_of_small_processes_is_a_sum,
        reserved_memory_does_not_count,
    );
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
mod stubborn {
    brig_attacks::attacks!(super::target, stubborn:
        a_timeout_ends_every_kind_of_tree,
        a_cancel_ends_every_kind_of_tree,
        destroying_ends_every_kind_of_tree,
        nothing_outlives_a_killed_owner,
    );
}
mod saving {
    brig_attacks::saving!(super::target);
}
mod limits {
    brig_attacks::attacks!(super::target, limits:
        process_and_thread_bombs_meet_their_cap,
        spinning_on_every_core_is_held_to_the_quota,
        more_processors_cannot_be_taken,
        an_exponential_bomb_leaves_the_host_responsive,
        the_disk_cap_holds_in_every_way,
        names_and_attributes_count_as_well,
        what_the_host_gave_to_write_is_not_said_to_be_limited,
        deep_folders_harm_nobody,
    );
}
mod processes {
    brig_attacks::attacks!(super::target, processes:
        host_processes_are_invisible,
        daemons_end_with_their_execution,
        orphans_are_reaped,
        an_abandoned_execution_ends,
    );
}
mod propagation {
    // The other kinds of mounts are not made in a container.
    brig_attacks::attacks!(super::target, propagation:
        host_mounts_do_not_reach_mounted_folders,
    );
}
mod secrets {
    brig_attacks::secrets!(super::target);
}
mod readonly {
    brig_attacks::attacks!(super::target, readonly:
        a_read_only_mount_cannot_be_changed,
        the_root_cannot_be_written,
        kernel_settings_cannot_be_written,
    );
}
