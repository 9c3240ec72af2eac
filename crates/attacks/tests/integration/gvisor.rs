//! The attacks on containers of gVisor, without control groups of their own. What is not here rests on
//! a control that gVisor does not have there, which has to be given up by name: see
//! `missing::what_cannot_be_enforced_is_refused_by_name`.

use brig_attacks::{AttackTarget, host};
use brig_sandbox::Control;

fn target() -> Option<AttackTarget> {
    let target = crate::docker::target("gvisor")?.without(&[Control::Cpu]);
    Some(AttackTarget {
        own_kernel: true,
        ..target
    })
}

/// With host directories, which somebody could swap between two looks.
fn with_folders() -> Option<AttackTarget> {
    Some(target()?.without(&[Control::Mounts]))
}

/// For attacks that would take the machine if nothing held them: only in a fence around the engine.
fn fenced() -> Option<AttackTarget> {
    let target = target()?;
    let held = std::env::var("BRIG_TEST_FENCE").unwrap_or_default();
    let held: Vec<&str> = held.split(',').collect();
    let missing = ["memory", "pids", "disk"].into_iter();
    let missing: Vec<&str> = missing.filter(|part| !held.contains(part)).collect();
    if missing.is_empty() {
        return Some(target);
    }
    host::skip(&format!(
        "nothing fences the {} of the tests' engine, so this is not tried on gVisor",
        missing.join(" and the ")
    ));
    None
}

mod environment {
    brig_attacks::environment!(super::target);
}
mod filesystem {
    brig_attacks::filesystem!(super::target);
}
mod filetypes {
    brig_attacks::filetypes!(super::fenced);
}
mod guest {
    brig_attacks::guest!(super::target);
}
mod ipc {
    brig_attacks::ipc!(super::with_folders);
}
mod kernel {
    brig_attacks::kernel!(super::with_folders);
}
mod directories {
    brig_attacks::attacks!(super::with_folders, limits:
        what_the_host_gave_to_write_is_not_said_to_be_limited,
    );
}
mod limits {
    brig_attacks::attacks!(super::fenced, limits:
        process_and_thread_bombs_meet_their_cap,
        an_exponential_bomb_leaves_the_host_responsive,
        the_disk_cap_holds_in_every_way,
        descriptors_and_kernel_objects_run_out_inside_only,
        deep_folders_harm_nobody,
    );
}
mod links {
    // A folder that is swapped takes an exchange of two names, which gVisor does not know.
    brig_attacks::attacks!(super::with_folders, links:
        links_are_not_followed_by_the_file_api,
        links_in_a_host_workspace_are_not_followed,
        a_swapped_mount_source_is_not_mounted,
        hard_links_do_not_leave_the_workspace,
    );
}
mod memory {
    brig_attacks::memory!(super::fenced);
}
mod missing {
    brig_attacks::attacks!(super::target, missing:
        what_cannot_be_enforced_is_refused_by_name,
    );
}
mod names {
    brig_attacks::names!(super::target);
}
mod namespaces {
    brig_attacks::namespaces!(super::target);
}
mod output {
    brig_attacks::output!(super::fenced);
}
mod privileges {
    brig_attacks::privileges!(super::with_folders);
}
mod processes {
    brig_attacks::attacks!(super::fenced, processes:
        host_processes_are_invisible,
        daemons_end_with_their_execution,
        orphans_are_reaped,
        an_abandoned_execution_ends,
    );
}
mod propagation {
    // The other kinds of mounts are not made in a container.
    brig_attacks::attacks!(super::with_folders, propagation:
        host_mounts_do_not_reach_mounted_folders,
    );
}
mod secrets {
    brig_attacks::secrets!(super::with_folders);
}
mod readonly {
    brig_attacks::attacks!(super::with_folders, readonly:
        a_read_only_mount_cannot_be_changed,
        the_root_cannot_be_written,
        kernel_settings_cannot_be_written,
    );
}
mod saving {
    // gVisor does not tell where a file has holes, so they are read, and a hundred gibibytes take long.
    brig_attacks::attacks!(super::fenced, saving:
        saving_does_not_write_through_links,
        saving_does_not_read_through_links,
        writes_through_mappings_are_saved,
        every_way_to_map_a_file_is_seen,
        a_mapping_outlives_no_save_unseen,
        a_moving_file_does_not_fill_the_host,
    );
}
mod stubborn {
    brig_attacks::attacks!(super::fenced, stubborn:
        a_timeout_ends_every_kind_of_tree,
        a_storm_ends_at_its_deadline,
        a_cancel_ends_every_kind_of_tree,
        destroying_ends_every_kind_of_tree,
        nothing_outlives_a_killed_owner,
    );
}
