//! The attacks on containers of gVisor with control groups, where those differ from gVisor without them: on limits,
//! and on what enforces them. Nothing of it takes a fence: the groups bound gVisor as a whole.

use brig_attacks::AttackTarget;
use brig_sandbox::Control;

fn target() -> Option<AttackTarget> {
    let target = crate::docker::target("runsc-groups")?;
    Some(AttackTarget {
        own_kernel: true,
        ..target
    })
}

/// With host directories, which somebody could swap between two looks.
fn with_folders() -> Option<AttackTarget> {
    Some(target()?.without(&[Control::Mounts]))
}

mod guest {
    brig_attacks::guest!(super::target);
}
mod limits {
    // gVisor counts time in which a program waits for a processor: `docker/cpu` looks at the quota from outside.
    brig_attacks::attacks!(super::target, limits:
        process_and_thread_bombs_meet_their_cap,
        an_exponential_bomb_leaves_the_host_responsive,
    );
}
mod memory {
    // What waits in pipes and sockets counts only in the group, which has 256 MiB more.
    brig_attacks::attacks!(super::target, memory:
        memory_beyond_the_cap_ends_the_tree,
        a_sum_of_small_processes_is_a_sum,
        reserved_memory_does_not_count,
    );
}
mod privileges {
    brig_attacks::privileges!(super::with_folders);
}
mod stubborn {
    brig_attacks::attacks!(super::target, stubborn:
        a_timeout_ends_every_kind_of_tree,
        a_storm_ends_at_its_deadline,
        a_cancel_ends_every_kind_of_tree,
        nothing_outlives_a_killed_owner,
    );
}
