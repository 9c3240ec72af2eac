//! The attacks on gVisor, as far as they are on the host and not on gVisor's own kernel. Those on
//! limits are left out: the tests' engine has no control groups there, so nothing would hold what a
//! bomb takes of the machine.

mod docker;

fn ground() -> Option<brig_attacks::Ground> {
    let ground = docker::ground("gvisor")?;
    Some(ground.without(&[brig_sandbox::Control::Cpu]))
}

mod environment {
    brig_attacks::attacks!(super::ground, environment:
        a_library_named_by_the_caller_is_not_loaded,
        loader_and_interpreter_variables_are_refused,
        the_callers_environment_stays_outside,
    );
}
mod filesystem {
    brig_attacks::attacks!(super::ground, filesystem:
        host_files_are_out_of_reach,
        no_descriptor_of_the_host_is_inherited,
        nothing_of_the_host_is_found_by_looking_everywhere,
        proc_shows_only_the_confined_root,
        sessions_do_not_see_each_others_files,
        the_launcher_is_not_overwritten,
    );
}
mod filetypes {
    brig_attacks::attacks!(super::ground, filetypes:
        crowded_folders_are_listed_or_refused,
        special_files_do_not_hold_up_the_file_api,
    );
}
mod ipc {
    brig_attacks::attacks!(super::ground, ipc:
        abstract_sockets_are_not_reachable,
        shared_objects_of_another_session_are_not_found,
        shared_objects_of_the_host_are_not_found,
        the_hosts_network_is_not_reachable,
    );
}
mod kernel {
    brig_attacks::attacks!(super::ground, kernel:
        a_path_rewritten_in_flight_reaches_nothing,
        other_doors_are_closed,
    );
}
mod links {
    brig_attacks::attacks!(super::ground, links:
        links_are_not_followed_by_the_file_api,
    );
}
mod names {
    brig_attacks::attacks!(super::ground, names:
        names_that_are_not_text_are_listed_intact,
        names_that_leave_the_workspace_are_refused,
        strange_names_are_kept_intact,
    );
}
mod namespaces {
    brig_attacks::attacks!(super::ground, namespaces:
        nothing_can_be_mounted,
    );
}
mod output {
    brig_attacks::attacks!(super::ground, output:
        a_flood_can_end_the_execution,
        a_flood_is_counted_and_dropped,
        the_cut_is_exact_whatever_the_bytes_are,
    );
}
mod privileges {
    brig_attacks::attacks!(super::ground, privileges:
        a_crash_is_not_handed_to_the_host,
    );
}
mod processes {
    brig_attacks::attacks!(super::ground, processes:
        daemons_end_with_their_execution,
        host_processes_are_invisible,
    );
}
mod readonly {
    brig_attacks::attacks!(super::ground, readonly:
        kernel_settings_cannot_be_written,
    );
}
