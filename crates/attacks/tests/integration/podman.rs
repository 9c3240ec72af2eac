//! The attacks on containers of Podman: where its API differs from Docker's, on the guest, and on what has to end.
//! Most limits are part of the contract, which is tried there too.

fn target() -> Option<brig_attacks::AttackTarget> {
    crate::docker::target_of("BRIG_TEST_PODMAN", "auto")
}

mod filesystem {
    brig_attacks::filesystem!(super::target);
}
mod filetypes {
    // The tmpfs of Podman does not limit the number of files.
    brig_attacks::attacks!(super::target, filetypes:
        special_files_do_not_hold_up_the_file_api,
        crowded_folders_are_listed_or_refused,
    );
}
mod guest {
    brig_attacks::guest!(super::target);
}
mod kernel {
    brig_attacks::kernel!(super::target);
}
mod limits {
    brig_attacks::attacks!(super::target, limits:
        process_and_thread_bombs_meet_their_cap,
        the_disk_cap_holds_in_every_way,
    );
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
mod output {
    brig_attacks::output!(super::target);
}
mod readonly {
    brig_attacks::attacks!(super::target, readonly:
        a_read_only_mount_cannot_be_changed,
        the_root_cannot_be_written,
        kernel_settings_cannot_be_written,
    );
}
mod secrets {
    brig_attacks::secrets!(super::target);
}
mod stubborn {
    brig_attacks::attacks!(super::target, stubborn:
        a_timeout_ends_every_kind_of_tree,
        a_cancel_ends_every_kind_of_tree,
        destroying_ends_every_kind_of_tree,
        nothing_outlives_a_killed_owner,
    );
}
