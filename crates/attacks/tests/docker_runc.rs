//! The attacks on containers of runc. What rests on a namespace for each execution, or on one disk
//! for all places, is different there by design, and so is what only a host's folder as root has.

mod docker;

fn ground() -> Option<brig_attacks::Ground> {
    docker::ground("runc")
}

mod environment {
    brig_attacks::environment!(super::ground);
}
mod filesystem {
    brig_attacks::filesystem!(super::ground);
}
mod filetypes {
    brig_attacks::filetypes!(super::ground);
}
mod guest {
    brig_attacks::guest!(super::ground);
}
mod ipc {
    brig_attacks::ipc!(super::ground);
}
mod kernel {
    brig_attacks::kernel!(super::ground);
}
mod links {
    brig_attacks::links!(super::ground);
}
mod memory {
    // An engine can't have version 1 of control groups count what waits in TCP sockets.
    brig_attacks::attacks!(super::ground, memory:
        memory_beyond_the_cap_ends_the_tree,
        a_sum_of_small_processes_is_a_sum,
        memory_that_is_not_taken_is_no_crime,
    );
}
mod names {
    brig_attacks::names!(super::ground);
}
mod namespaces {
    brig_attacks::namespaces!(super::ground);
}
mod output {
    brig_attacks::output!(super::ground);
}
mod privileges {
    brig_attacks::privileges!(super::ground);
}
mod stubborn {
    brig_attacks::attacks!(super::ground, stubborn:
        a_timeout_ends_every_kind_of_tree,
        a_cancel_ends_every_kind_of_tree,
        destroying_ends_every_kind_of_tree,
        nothing_outlives_a_killed_owner,
    );
}
mod saving {
    brig_attacks::saving!(super::ground);
}
mod limits {
    brig_attacks::attacks!(super::ground, limits:
        process_and_thread_bombs_meet_their_cap,
        spinning_on_every_core_is_held_to_the_quota,
        more_processors_cannot_be_taken,
        an_exponential_bomb_leaves_the_host_responsive,
        the_disk_cap_holds_in_every_way,
        names_and_attributes_count_as_well,
        deep_folders_harm_nobody,
    );
}
mod processes {
    brig_attacks::attacks!(super::ground, processes:
        host_processes_are_invisible,
        daemons_end_with_their_execution,
        orphans_are_reaped,
        an_abandoned_execution_ends,
    );
}
mod readonly {
    brig_attacks::attacks!(super::ground, readonly:
        a_read_only_mount_cannot_be_changed,
        the_root_cannot_be_written,
        kernel_settings_cannot_be_written,
    );
}
